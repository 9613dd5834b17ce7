"""Compiles the CPU's plans to WebAssembly, for the pages that compute in a browser.

``python scripts/playground.py`` writes ``roipool/tools/compare/data/playground.wasm``, and with
``--check`` fails if the file there is another. It needs the dependency group "playground", whose
compiler is pinned, so that the bytes are the same everywhere.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "roipool" / "kernels" / "wasm" / "playground.cpp"
COMPILED = ROOT / "roipool" / "tools" / "compare" / "data" / "playground.wasm"
# Without contraction and fast-math, so that floor, ceil and border decisions are as everywhere.
FLAGS = (
    "-target wasm32-wasi -mexec-model=reactor -std=c++17 -O2 -ffp-contract=off "
    "-fno-exceptions -fno-rtti -Wall -Wextra -Werror -Wl,--strip-all"
).split()


def main() -> int:
    """Write the file, or compare it."""
    module, name = compiled(), COMPILED.relative_to(ROOT)
    if sys.argv[1:] == ["--check"]:
        same = COMPILED.read_bytes() == module
        print(f"{name} is {'as' if same else 'not as'} the compiler makes it")
        return 0 if same else 1
    COMPILED.write_bytes(module)
    print(f"{name}: {len(module)} bytes")
    return 0


def compiled() -> bytes:
    """Compile and return the module."""
    with tempfile.TemporaryDirectory() as folder:
        module = Path(folder) / "playground.wasm"
        compiler = (sys.executable, "-m", "ziglang", "c++")
        subprocess.run([*compiler, *FLAGS, "-o", str(module), str(SOURCE)], check=True)
        return module.read_bytes()


if __name__ == "__main__":
    sys.exit(main())
