"""Registers, shared memory and spills of every CUDA kernel, as ptxas reports them.

``python benchmarks/cuda_resources.py`` writes ``benchmarks/cuda_resources.md``; it needs nvcc, and
no GPU. Shared memory is dynamic (the host chooses it, see ``_cuda.py``), so ptxas reports none.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from cuda_texts import Text, every_type_and_layout  # noqa: E402

from roipool._source import OPTIONS  # noqa: E402

RESULT = Path(__file__).with_suffix(".md")
REPORT = re.compile(
    r"Compiling entry function '(\w+)'.*?(\d+) bytes stack frame, (\d+) bytes spill stores, "
    r"(\d+) bytes spill loads.*?Used (\d+) registers",
    re.DOTALL,
)


def texts() -> list[Text]:
    """Return every file in every type and layout, and the maxima of whole cells."""
    cells = every_type_and_layout("roi_pool")
    return [
        *every_type_and_layout("roi_align"),
        *(text for text in cells if text.file == "maximum_forward" and text.label == "int"),
    ]


def resources(text: Text, architecture: int, folder: Path) -> list[tuple[str, ...]]:
    """Return kernel, registers, stack and spilled bytes of each kernel of a text."""
    source = folder / "kernel.cu"
    source.write_text(text.source())
    command = [
        "nvcc", "-cubin", f"-arch=sm_{architecture}", "-ftz=true", *OPTIONS, "-Xptxas", "-v",
        str(source), "-o", str(folder / "kernel.cubin"),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    # The compiler also lists functions that kernels call; those have no "entry".
    rows = []
    for block in re.split(r"(?=ptxas info\s*: Compiling entry)", done.stderr):
        found = REPORT.search(block)
        if found:
            kernel, stack, stores, loads, registers = found.groups()
            rows.append((kernel, registers, stack, str(int(stores) + int(loads))))
    return rows


def main() -> None:
    """Compile everything and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arch", type=int, nargs="*", default=[90], help="such as 90")
    options = parser.parse_args()
    version = subprocess.run(["nvcc", "--version"], capture_output=True, text=True, check=True)
    release = re.search(r"release [\d.]+, V[\d.]+", version.stdout)
    compiler = release[0] if release else "of an unknown release"
    columns = " | ".join(f"sm_{arch}: registers, stack, spills" for arch in options.arch)
    lines = [
        "# What the CUDA kernels use",
        "",
        f"Written by `python benchmarks/cuda_resources.py` with nvcc {compiler}, options",
        f"`{' '.join(OPTIONS)} -ftz=true`: registers per thread, bytes of stack, bytes spilled",
        "(stores and loads). The stack of planning kernels, and what they spill in float64, is for",
        "exact division, which is a call.",
        "",
        f"| kernel | definition | type | layout | channels per thread | winners | {columns} |",
        "|---|---|---|---|---|---|" + "---|" * len(options.arch),
    ]
    plans: set[tuple[str, str]] = set()
    with tempfile.TemporaryDirectory() as name:
        for text in texts():
            print(text, file=sys.stderr)
            per_arch = [resources(text, arch, Path(name)) for arch in options.arch]
            for rows in zip(*per_arch, strict=True):
                kernel = rows[0][0]
                # A plan depends on the element type alone: one row of each will do.
                if kernel.startswith("plan_") and (kernel, text.dtype) in plans:
                    continue
                plans.add((kernel, text.dtype))
                used = " | ".join(", ".join(row[1:]) for row in rows)
                lines.append(
                    f"| {kernel} | {text.definition} | {text.dtype} | {text.layout} | "
                    f"{text.pack} | {text.label} | {used} |"
                )
    RESULT.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
