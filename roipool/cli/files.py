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

STDOUT = ("-", "/dev/stdout")  # names of standard output in options for JSON files


def check_writable(path: str) -> None:
    """Check, before any work, that ``path`` can be written.

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
    """Check the output paths of a command before any work.

    Parameters
    ----------
    outputs : mapping of str to (str or None)
        The output files by option; standard output is not checked.
    inputs : iterable of (str or None)
        Input files, which must not be overwritten.

    Raises
    ------
    ValueError, OSError
        If a file cannot or must not be written, or if two options name the same file.
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
    """Check, before any work, that a figure can be drawn.

    Parameters
    ----------
    path : str or None
        The output file, if requested.

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
    """Return whether `path` is a file, which each write replaces.

    Writes to standard output, a device or a pipe follow one another.
    """
    return path is not None and path not in STDOUT and not _is_device(path, _target(path))


@contextlib.contextmanager
def replacing(path: str) -> Iterator[BinaryIO]:
    """Open a file for writing that replaces ``path`` once it is complete.

    Data are written to a temporary file in the same folder, which is renamed at the end, or removed
    after an error. It gets the permissions of the file that it replaces, or those of a new file.
    Links are followed. A device or a pipe is written directly, since renaming would replace it.

    Raises
    ------
    OSError
        If `path`, which the error names, cannot be written.
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
    """Open a file that only its owner can open, until its permissions are set."""
    return os.open(path, flags, 0o600)


def _target(path: str) -> Path:
    return Path(os.path.realpath(path))


def _is_same(first: str, second: str) -> bool:
    """Return whether two names mean the same file, even if they differ in case."""
    with contextlib.suppress(OSError):
        return Path(first).samefile(second)
    return _target(first) == _target(second)


def _is_device(path: str, target: Path) -> bool:
    # A name such as /dev/fd/3 may be an open file, which a rename would disconnect.
    return path.startswith(("/dev/", "/proc/")) or (target.exists() and not target.is_file())
