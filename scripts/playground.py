"""Compiles the CPU's plans to WebAssembly, for the pages that compute in a browser.

``python scripts/playground.py`` writes ``roipool/tools/compare/data/playground.wasm``. It needs the
dependency group "playground", whose compiler is pinned, so that the file is the same everywhere. A
section at the end of the file holds a digest of the sources, so that a test can detect an outdated
file without the compiler.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "roipool" / "kernels" / "wasm" / "playground.cpp"
COMPILED = ROOT / "roipool" / "tools" / "compare" / "data" / "playground.wasm"
SECTION = "roipool.sources"
# Without contraction and fast-math, so that floor, ceil and border decisions are as everywhere.
FLAGS = (
    "-target wasm32-wasi -mexec-model=reactor -std=c++17 -O2 -ffp-contract=off "
    "-fno-exceptions -fno-rtti -Wall -Wextra -Werror -Wl,--strip-all"
).split()


def main() -> int:
    """Write the file."""
    COMPILED.write_bytes(compiled())
    print(f"{COMPILED.relative_to(ROOT)}: {COMPILED.stat().st_size} bytes")
    return 0


def compiled() -> bytes:
    """Compile and return the module."""
    with tempfile.TemporaryDirectory() as folder:
        module = Path(folder) / "playground.wasm"
        compiler = (sys.executable, "-m", "ziglang", "c++")
        subprocess.run([*compiler, *FLAGS, "-o", str(module), str(SOURCE)], check=True)
        return module.read_bytes() + _section(SECTION, digest())


def digest() -> bytes:
    """Return a digest of the compiler's flags and of all sources without comments."""
    content = hashlib.sha256(" ".join(FLAGS).encode())
    for path in sorted(_included(SOURCE, set())):
        text = re.sub(r"//.*", "", path.read_text(encoding="utf-8"))
        content.update(" ".join(text.split()).encode())
    return content.digest()


def stored_digest(module: bytes) -> bytes:
    """Return the digest in a module."""
    return module[-hashlib.sha256().digest_size :]


def _included(path: Path, files: set[Path]) -> set[Path]:
    """Add a file, and the project's files that it includes."""
    files.add(path)
    for name in re.findall(r'^#include "(.*)"', path.read_text(encoding="utf-8"), re.MULTILINE):
        header = (path.parent / name).resolve()
        if header not in files:
            _included(header, files)
    return files


def _section(name: str, content: bytes) -> bytes:
    """Return a section that browsers skip; its length must fit in one byte."""
    body = bytes([len(name)]) + name.encode() + content
    assert len(body) < 128
    return bytes([0, len(body)]) + body


if __name__ == "__main__":
    sys.exit(main())
