"""Count the instructions of the engine on arm64 beside those on x86-64 with AVX2, under QEMU.

A vector of NEON has half as many numbers as one of AVX2, so that the same work should need at most
twice the instructions, and a little more for what x86 does in one, such as an operand in memory.
Only functions of the engine count, which is what is compiled for each instruction set. These are
instructions, not times. Results must have the same bits on both processors.

    python benchmarks/arm64.py            # exit status 1 if a case needs more, or has other bits
    python benchmarks/arm64.py --update   # write results/arm64.json

Needs g++, aarch64-linux-gnu-g++, and static QEMU for both processors, and takes ten minutes.
"""

from __future__ import annotations

import argparse
import ast
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from datetime import date
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from harness import ours
from harness.workloads import WORKLOADS, changed, task_of
from instructions import CASES as FLOAT32_CASES
from instructions import SMALL

from roipool import _kept, _pooling
from roipool._arrays import _numpy
from roipool._request import needs_no_boxes
from roipool.cli.files import replacing
from roipool.tools.libraries import Task

RESULTS = Path(__file__).with_name("results") / "arm64.json"
PROGRAM = Path(__file__).with_name("arm64.cpp")
ROOT = Path(__file__).parents[1]
KERNELS, SETUP = ROOT / "roipool" / "kernels" / "cpu", ROOT / "setup.py"
LIMIT = 1.15
NHWC = {"layout": "NHWC"}
# As those of instructions.py: name, changes to the workload, type of features, backward.
CASES: dict[str, tuple[str, Any, str, bool]] = {
    **FLOAT32_CASES,
    "fpn-box NHWC backward": ("fpn-box", NHWC, "float32", True),
    "fpn-box maximum NHWC": ("stress-max-align", NHWC, "float32", False),
    "fpn-box maximum backward": ("stress-max-align", {}, "float32", True),
    "vgg16-pool with argmax": ("vgg16-pool-train", {}, "float32", False),
    "rfcn-align": ("rfcn-align", {"channels": 4}, "float32", False),
    "rfcn-align backward": ("rfcn-align", {"channels": 4}, "float32", True),
    "fpn-deform": ("fpn-deform", {}, "float32", False),
    "fpn-deform backward": ("fpn-deform", {}, "float32", True),
    "three channels": ("stress-three-channels", {"channels": 3}, "float32", False),
    "three channels NHWC": ("stress-three-channels", {"channels": 3, **NHWC}, "float32", False),
    "three channels NHWC uint8": ("stress-three-channels", {"channels": 3, **NHWC}, "uint8", False),
    "fpn-box float16 backward": ("fpn-box", {}, "float16", True),
    "fpn-box float16 NHWC": ("fpn-box", NHWC, "float16", False),
    "fpn-box float16 NHWC backward": ("fpn-box", NHWC, "float16", True),
    "64 channels float16 NHWC": ("fpn-box", {"channels": 64, **NHWC}, "float16", False),
    "vgg16-pool float16": ("vgg16-pool", {}, "float16", False),
    "fpn-box float64": ("fpn-box", {}, "float64", False),
    "fpn-box float64 backward": ("fpn-box", {}, "float64", True),
    "fpn-box maximum float64": ("stress-max-align", {}, "float64", False),
}


def of_setup(name: str) -> Any:
    """Return a constant of setup.py, which builds when it is imported."""
    for node in ast.parse(SETUP.read_text()).body:
        match node:
            case ast.Assign(targets=[ast.Name(id=found)]) if found == name:
                return ast.literal_eval(node.value)
    raise LookupError(f"{SETUP} has no {name}")


FLAGS = [*of_setup("GEOMETRY_FLAGS"), "-g0"]
# A compiler, its flags for the engine, and a processor that runs what it compiles.
PROCESSORS = {
    "neon": ("aarch64-linux-gnu-g++", [], ["qemu-aarch64-static"]),
    "avx2": ("g++", of_setup("X86_ENGINES")["avx2"], ["qemu-x86_64-static", "-cpu", "max"]),
}
PIPES: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
ENGINE = b"8baseline"  # in the mangled names of its functions


class Recorder:
    """An engine that writes down the calls of a case, as arm64.cpp reads them.

    Attributes
    ----------
    lines : list of str
        A call each.
    outputs : int
        Numbers that the calls compute.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.outputs = 0

    def average(self, features: Any, regions: Any, pooling: Any, out: Any) -> None:
        """Write down an average."""
        self._add("average", regions, pooling, features[0].shape, out, out.size, features[0])

    def average_backward(self, grad_output: Any, regions: Any, pooling: Any, outs: Any) -> None:
        """Write down the gradient of an average."""
        (out,) = outs
        self._add("average_backward", regions, pooling, out.shape, grad_output, out.size)

    def maximum(
        self, features: Any, regions: Any, pooling: Any, out: Any, *, return_argmax: bool
    ) -> None:
        """Write down a maximum."""
        self._add(
            "maximum", regions, pooling, features.shape, out, out.size, features, return_argmax
        )

    def maximum_backward(
        self, engine: Any, grad_output: Any, argmax: Any, regions: Any, pooling: Any, out: Any
    ) -> None:
        """Write down the gradient of a maximum; the program computes the argmax itself."""
        operation = "unpool" if needs_no_boxes(pooling) else "maximum_backward"
        self._add(operation, regions, pooling, out.shape, grad_output, out.size, argmax=True)

    def _add(
        self,
        operation: str,
        regions: Any,
        pooling: Any,
        shape: tuple[int, ...],
        pooled: Any,
        outputs: int,
        features: Any = None,
        argmax: bool = False,
    ) -> None:
        definition, rules = pooling.definition, pooling.rules
        nchw = [shape[i] for i in ((0, 3, 1, 2) if pooling.layout == "NHWC" else range(4))]
        has_bytes = features is not None and features.itemsize == 1
        self.outputs += outputs
        words = [int(not self.lines), operation, pooled.dtype]
        words += [features.dtype if has_bytes else "pooled", pooling.layout]
        words += [definition.name, definition.scale, *definition.sampling, int(definition.aligned)]
        words += [definition.offset_factor, *pooling.group_size, *nchw, *pooling.output_size]
        words += [rules.lowest, int(rules.argmax_is_cell), int(argmax), len(regions.boxes)]
        for image, box in zip(regions.batch_indices, regions.boxes, strict=True):
            words += [image, *map(float, box)]
        self.lines.append(" ".join(map(str, words)))


def recorded(task: Task) -> Recorder:
    """Return what roipool asks of its engine for a task."""
    recorder, call = Recorder(), ours.prepare(task)
    with (
        _kept.observed(),
        patch.object(_numpy, "engine", recorder),
        patch.object(_pooling, "maximum_backward", recorder.maximum_backward),
    ):
        call()
    return recorder


def task(name: str, changes: dict[str, Any], dtype: str, backward: bool) -> Task:
    """Return a small workload's task; of bytes, only the type and shape of features matter."""
    has_bytes = dtype == "uint8"
    found = task_of(
        changed(WORKLOADS[name], **SMALL | changes), "float32" if has_bytes else dtype, backward
    )
    if not has_bytes:
        return found
    levels = [
        level._replace(features=np.zeros(level.features.shape, dtype)) for level in found.levels
    ]
    return found._replace(levels=levels)


def compiled(compiler: str, flags: list[str], folder: Path) -> Path:
    """Compile the program and the engine."""
    program = folder / "program"
    objects: list[Any] = []
    for name, contraction in of_setup("CONTRACTION").items():
        objects.append(folder / f"{name}.o")
        command = [compiler, *FLAGS, contraction, *flags, "-DROIPOOL_ENGINE=baseline"]
        source = KERNELS / f"{name}.cpp"
        subprocess.run([*command, "-c", source, "-o", objects[-1]], check=True)
    command = [compiler, *FLAGS, "-DROIPOOL_ENGINE=shared", "-DROIPOOL_BUILT_BASELINE", "-static"]
    command += [PROGRAM, KERNELS / "engines.cpp", *objects]
    subprocess.run([*command, "-o", program], check=True)
    return program


def counted(qemu: list[str], program: Path, calls: str) -> tuple[list[int], list[str]]:
    """Return the engine's instructions in each case, and a digest of each case's results.

    QEMU translates code block by block: it logs the instructions of each, and every execution.
    """
    given = program.with_name("calls")
    given.write_text(calls)
    command: list[Any] = [*qemu, "-d", "in_asm,exec,nochain", "-D", "/dev/stdout", program]
    with given.open() as stream, subprocess.Popen(command, stdin=stream, **PIPES) as process:
        counts = list(between_marks(process.stdout))
        digests = process.stderr.read().decode().split()
    if process.returncode:
        raise RuntimeError(f"{qemu[0]} ended with status {process.returncode}: {digests}")
    return counts, digests


def between_marks(log: Iterable[bytes]) -> Iterator[int]:
    """Yield the engine's instructions between each two calls of ``mark``."""
    lengths: dict[bytes, int] = {}
    length = count = marks = 0
    for line in log:
        if line.startswith(b"0x"):
            length += 1
        elif line.startswith(b"Trace "):
            block = line.split(b" ", 3)[2]
            if length:  # it was translated just before
                lengths[block], length = length, 0
            function = line[line.rindex(b"]") + 2 : -1]
            if ENGINE in function:
                count += lengths[block]
            elif function == b"mark":
                marks += 1
                if marks % 2 == 0:
                    yield count
                count = 0


def version(program: str) -> str:
    """Return the line in which a program names its version."""
    command = [program, "--version"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")[0]


def measured() -> dict[str, Any]:
    """Count everything."""
    calls = [recorded(task(*case)) for case in CASES.values()]
    text = "\n".join(line for call in calls for line in call.lines)
    counts, digests = {}, []
    for name, (compiler, flags, qemu) in PROCESSORS.items():
        with tempfile.TemporaryDirectory() as folder:
            program = compiled(compiler, flags, Path(folder))
            counts[name], found = counted(qemu, program, text)
            digests.append(found)
    rows = []
    for number, (name, call) in enumerate(zip(CASES, calls, strict=True)):
        neon, avx2 = (counts[processor][number] for processor in PROCESSORS)
        rows.append(
            {
                "name": name,
                "outputs": call.outputs,
                "neon": neon,
                "avx2": avx2,
                "ratio": round(neon / avx2 / 2, 3),
                "same_bits": digests[0][number] == digests[1][number],
            }
        )
    software = [
        version(program)
        for compiler, _, qemu in PROCESSORS.values()
        for program in (compiler, qemu[0])
    ]
    return {"date": date.today().isoformat(), "software": software, "rows": rows}


def main() -> int:
    """Count, then judge or write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--update", action="store_true", help=f"write results/{RESULTS.name}")
    options = parser.parse_args()
    found = measured()
    for row in found["rows"]:
        print(json.dumps(row))
    if options.update:
        with replacing(str(RESULTS)) as stream:
            stream.write((json.dumps(found, indent=1) + "\n").encode("ascii"))
    bad = [row["name"] for row in found["rows"] if row["ratio"] > LIMIT or not row["same_bits"]]
    if bad:
        print(f"too many instructions, or other bits: {'; '.join(bad)}", file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
