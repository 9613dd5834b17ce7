"""Kernel texts to functions: the C++ compiler in place of NVRTC, one shared library per text."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

DEVICE = Path(__file__).with_name("device.h")
COMPILER = shutil.which(os.environ.get("CXX", "g++").split()[0]) or shutil.which("c++")
FLAGS = (
    "-std=c++17", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-ffp-contract=off",
    "-fno-math-errno", "-Wno-unused", "-x", "c++",
)  # fmt: skip
# Options of a device compiler that FLAGS already are, or that say nothing to a C++ compiler.
KNOWN_OPTIONS = {"-std=c++17", "-fmad=false"}
KERNEL = re.compile(r'extern "C" __global__ void(?:\s+__launch_bounds__\([^)]*\))?\s+(\w+)\(')


def sanitizers() -> list[str]:
    """Return flags from ROIPOOL_EMULATOR_SANITIZE, for example "address,undefined"."""
    names = os.environ.get("ROIPOOL_EMULATOR_SANITIZE", "")
    if not names:
        return []
    # Building takes longer than running, and an optimiser drops what nobody uses: -O0.
    return [
        f"-fsanitize={names}", "-fno-sanitize-recover=all", "-O0", "-g1", "-fno-omit-frame-pointer",
    ]  # fmt: skip


def cache_folder() -> Path:
    """Return where compiled texts are kept: ROIPOOL_EMULATOR_CACHE, or this user's own folder."""
    chosen = os.environ.get("ROIPOOL_EMULATOR_CACHE")
    own = Path(tempfile.gettempdir()) / f"roipool-emulator-{os.getuid()}"
    base = Path(chosen) if chosen else own
    base.mkdir(mode=0o700, parents=True, exist_ok=True)
    return base


@cache
def compiler_version() -> str:
    """Return what the compiler says of itself."""
    if COMPILER is None:
        raise RuntimeError("the emulator needs a C++ compiler (CXX, g++ or c++)")
    command = [COMPILER, "--version"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@cache
def library(text: str, options: tuple[str, ...]) -> ctypes.CDLL:
    """Compile a kernel text, or find it compiled, and load it."""
    unknown = set(options) - KNOWN_OPTIONS
    if unknown:
        raise ValueError(f"the emulator does not know the options {sorted(unknown)}")
    names = KERNEL.findall(text)
    if len(names) != text.count("__global__ void"):
        raise ValueError("the emulator did not recognise every kernel of a text")
    exports = "\n".join(f"ROIPOOL_EMULATE({name})" for name in names)
    source = f'#include "{DEVICE}"\n{text}\n{exports}\n'
    flags = [*FLAGS, *sanitizers()]
    key = hashlib.sha256(
        "\0".join([source, DEVICE.read_text(), compiler_version(), *flags]).encode()
    ).hexdigest()
    file = cache_folder() / f"{key}.so"
    if not file.exists():
        build(source, flags, file)
    return ctypes.CDLL(str(file))


def build(source: str, flags: list[str], file: Path) -> None:
    """Compile a source to a shared library; several processes may do so at once."""
    with tempfile.TemporaryDirectory(dir=file.parent) as folder:
        text, result = Path(folder) / "kernel.cu", Path(folder) / "kernel.so"
        text.write_text(source)
        command = [str(COMPILER), *flags, str(text), "-o", str(result)]
        # What is preloaded for sanitizing makes the compiler itself twice as slow.
        environment = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SyntaxError(done.stderr)
        result.replace(file)
