"""Atomic output files."""

from __future__ import annotations

import contextlib
import importlib
import os
import secrets
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

__all__ = [
    "STDOUT",
    "check_figure",
    "check_outputs",
    "check_writable",
    "is_replaceable",
    "replacing",
]

STDOUT = ("-", "/dev/stdout")  # each stands for standard output where a JSON file is asked for


def check_writable(path: str) -> None:
    """Find out before any work whether ``path`` can be written.

    Parameters
    ----------
    path : str
        The file that is to be written later.

    Raises
    ------
    OSError
        If its folder is missing or refuses new files, or if ``path`` itself is a folder.
    """
    target = _target(path)
    if target.is_dir():
        raise IsADirectoryError(f"{path}: cannot be written, it is a folder")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{path}: cannot be written, there is no folder {target.parent}")
    if not os.access(target.parent, os.W_OK | os.X_OK) and not _is_device(path, target):
        raise PermissionError(f"{path}: cannot be written, no permission in {target.parent}")


def check_outputs(outputs: Mapping[str, str | None], inputs: Iterable[str | None] = ()) -> None:
    """Find out before any work what would keep a command from writing its results.

    Parameters
    ----------
    outputs : mapping of str to (str or None)
        The files to be written, by the option that names each; standard output is none.
    inputs : iterable of (str or None)
        Files that are read, and so must not be written.

    Raises
    ------
    ValueError, OSError
        If a file cannot or must not be written, or if two are one.
    """
    paths = {o: path for o, path in outputs.items() if path is not None and path not in STDOUT}
    options: dict[Path, str] = {}
    for option, path in paths.items():
        check_writable(path)
        if any(name is not None and _is_same(name, path) for name in inputs):
            raise ValueError(f"{path}: would overwrite the input")
        first = options.setdefault(_target(path), option)
        if first != option:
            raise ValueError(f"{path}: both {first} and {option} would write it")


def check_figure(path: str | None, option: str, formats: Collection[str]) -> None:
    """Find out before any work whether a figure of that name can be drawn.

    Parameters
    ----------
    path : str or None
        Its file, if one is asked for.
    option : str
        What names it.
    formats : collection of str
        The suffixes that it may have.

    Raises
    ------
    ValueError, ImportError
        If the format is unknown or matplotlib is not installed.
    """
    if path is not None:
        if Path(path).suffix.lower() not in formats:
            raise ValueError(f"{path}: {option} writes {', '.join(formats)}")
        importlib.import_module("matplotlib")


def is_replaceable(path: str | None) -> bool:
    """Return whether `path` is a file, in which what is written last replaces what was before.

    Standard output, a device or a pipe gets one after the other.
    """
    return path is not None and path not in STDOUT and not _is_device(path, _target(path))


@contextlib.contextmanager
def replacing(path: str) -> Iterator[BinaryIO]:
    """Open a file for writing that takes the name ``path`` only once it is complete.

    The data go to a temporary file in the same folder, which is renamed at the end and removed
    if anything fails. It gets the permissions of the file that it replaces, or those of any new
    file. A link is followed; a device or a pipe is written directly, for it must not be replaced by
    a file.

    Parameters
    ----------
    path : str
        The name of the finished file.

    Yields
    ------
    binary file
        Where to write.

    Raises
    ------
    OSError
        Naming `path`, if it cannot be written.
    """
    try:
        with _replacing(path, _target(path)) as stream:
            yield stream
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, path) from error


@contextlib.contextmanager
def _replacing(path: str, target: Path) -> Iterator[BinaryIO]:
    if _is_device(path, target):
        with target.open("wb") as stream:
            yield stream
        return
    temporary = target.with_name(f".roipool-{secrets.token_hex(8)}.tmp")
    try:
        if target.exists():
            with open(temporary, "xb", opener=_open_private) as stream:
                shutil.copymode(target, temporary)
                yield stream
        else:
            with temporary.open("xb") as stream:
                yield stream
        temporary.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def _open_private(path: str, flags: int) -> int:
    """Open a file that nobody else can open, before it has its permissions."""
    return os.open(path, flags, 0o600)


def _target(path: str) -> Path:
    return Path(os.path.realpath(path))


def _is_same(first: str, second: str) -> bool:
    """Return whether two names are of one file, such as names with and without capitals."""
    with contextlib.suppress(OSError):
        return Path(first).samefile(second)
    return _target(first) == _target(second)


def _is_device(path: str, target: Path) -> bool:
    # Names such as /dev/fd/3 may lead to an open file, which a rename would cut off.
    return path.startswith(("/dev/", "/proc/")) or (target.exists() and not target.is_file())
