"""Machine code on disk, so that a process need not compile what another has compiled.

As CuPy keeps its own, for programs whose kernels are compiled without it. A folder that cannot be
read or written is no error: each process then compiles for itself.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from roipool import _settings

DIGEST_BYTES = hashlib.sha256().digest_size


def folder() -> Path | None:
    """Return the folder of machine code, or None where the user has no home."""
    own = _settings.cuda_cache()
    if own is not None:
        return Path(own)
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        return (cache if cache.is_absolute() else Path.home() / ".cache") / "roipool"
    except RuntimeError:
        return None


def compiled(parts: Sequence[str], compile_it: Callable[[], bytes]) -> bytes:
    """Return machine code from disk, or compile it and keep it there.

    `parts` are all that it depends on: the compiler's version, its options, and the source.
    """
    place = folder()
    if place is None:
        return compile_it()
    file = place / f"{hashlib.sha256(repr(tuple(parts)).encode()).hexdigest()}.cubin"
    code = _read(file)
    if code is None:
        code = compile_it()
        with contextlib.suppress(OSError):
            _write(file, code)
    return code


def _read(file: Path) -> bytes | None:
    """Return what a file holds after its digest, or None if that is not what was written."""
    try:
        content = file.read_bytes()
    except OSError:
        return None
    digest, code = content[:DIGEST_BYTES], content[DIGEST_BYTES:]
    return code if hashlib.sha256(code).digest() == digest else None


def _write(file: Path, code: bytes) -> None:
    """Write a file under another name, and rename it: nobody reads a part of it."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=file.parent, delete=False) as temporary:
        other = Path(temporary.name)
        try:
            temporary.write(hashlib.sha256(code).digest() + code)
            temporary.close()
            other.replace(file)
        except OSError:
            temporary.close()
            other.unlink()
            raise
