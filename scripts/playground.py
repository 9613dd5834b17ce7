"""Compiles the CPU's plans to WebAssembly, for the pages that compute in a browser.

``python scripts/playground.py`` writes ``roipool/tools/compare/data/playground.wasm``. It needs the
dependency group "playground", whose compiler is pinned, so that the bytes are the same everywhere.
The file ends with a section that holds a digest of the sources, by which a test finds one that is
out of date on machines that lack the compiler.
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
# Decisions (floor, ceil, outside) as everywhere: without contraction, and without fast-math.
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
    """Return the module."""
    with tempfile.TemporaryDirectory() as folder:
        module = Path(folder) / "playground.wasm"
        compiler = (sys.executable, "-m", "ziglang", "c++")
        subprocess.run([*compiler, *FLAGS, "-o", str(module), str(SOURCE)], check=True)
        return module.read_bytes() + _section(SECTION, digest())


def digest() -> bytes:
    """Return a digest of all sources and of the compiler's flags; comments do not count."""
    found = hashlib.sha256(" ".join(FLAGS).encode())
    for path in sorted(_included(SOURCE, set())):
        text = re.sub(r"//.*", "", path.read_text(encoding="utf-8"))
        found.update(" ".join(text.split()).encode())
    return found.digest()


def stored_digest(module: bytes) -> bytes:
    """Return the digest that a module was made with."""
    return module[-hashlib.sha256().digest_size :]


def _included(path: Path, found: set[Path]) -> set[Path]:
    """Add a file and all that it includes of ours."""
    found.add(path)
    for name in re.findall(r'^#include "(.*)"', path.read_text(encoding="utf-8"), re.MULTILINE):
        header = (path.parent / name).resolve()
        if header not in found:
            _included(header, found)
    return found


def _section(name: str, content: bytes) -> bytes:
    """Return a section that a browser skips; it must be short, so that a byte holds its length."""
    body = bytes([len(name)]) + name.encode() + content
    assert len(body) < 128
    return bytes([0, len(body)]) + body


if __name__ == "__main__":
    sys.exit(main())
