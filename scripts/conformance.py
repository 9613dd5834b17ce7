"""Writes docs/conformance.md: what installed libraries do where they differ from their definition.

    python scripts/conformance.py --python torch=VENV/bin/python --python mxnet=... > report.md

runs every line of the table below in the interpreter named for it, from the root of the source
tree. Each line of the report is a command that anyone can repeat.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

from roipool._system_info import processor
from roipool.cli.text import printable
from roipool.verification.conformance.reports import Report, Request, smallest_call

ROOT = Path(__file__).resolve().parents[1]
AWKWARD = "non-finite-boxes,huge-boxes"


class Line(NamedTuple):
    """One command: which interpreter has the packages, and the options of ``roipool verify``."""

    python: str
    packages: tuple[str, ...]
    implementation: str
    semantics: str
    backward: str | None = None
    arrays: str = "numpy"
    dtype: str = "float32"
    without: str = ""
    calls: int = 200
    timeout: int = 20


TORCH = ("torch", "torchvision")
BEYOND = AWKWARD + ",reversed-boxes,empty-boxes,empty-arrays"
LINES = (
    Line("torch", TORCH, "torchvision.ops:roi_align", "torchvision.roi_align", "autograd",
         "torch", calls=0),
    Line("torch", TORCH, "torchvision.ops:roi_align", "torchvision.roi_align", "autograd",
         "torch", without=AWKWARD),
    Line("torch", TORCH, "torchvision.ops:roi_align", "torchvision.roi_align", "autograd",
         "torch", "float16", AWKWARD + ",non-finite-cells"),
    Line("torch", TORCH, "torchvision.ops:roi_pool", "torchvision.roi_pool", "autograd", "torch"),
    Line("torch", ("onnxruntime",), "onnxruntime", "onnx.RoiAlign"),
    Line("torch", ("onnxruntime",), "onnxruntime", "onnx.RoiAlign max"),
    Line("torch", ("onnxruntime",), "onnxruntime", "onnx.MaxRoiPool"),
    Line("tensorflow", ("tensorflow-cpu",), "tensorflow", "tensorflow.crop_and_resize", "autograd"),
    Line("openvino", ("openvino",), "openvino", "torchvision.roi_align", calls=0, timeout=5),
    Line("openvino", ("openvino",), "openvino", "torchvision.roi_align", without=BEYOND, calls=100),
    Line("openvino", ("openvino",), "openvino", "torchvision.roi_pool", calls=100),
    Line("mxnet", ("mxnet",), "mxnet", "mxnet.ROIPooling"),
    Line("mxnet", ("mxnet",), "mxnet", "mxnet.contrib_ROIAlign", "autograd", calls=0),
    Line("mxnet", ("mxnet",), "mxnet", "mxnet.contrib_ROIAlign", "autograd", without=BEYOND),
    Line("paddle", ("paddlepaddle",), "paddle", "torchvision.roi_pool"),
    Line("paddle", ("paddlepaddle",), "paddle", "torchvision.roi_align", "autograd", calls=0),
    Line("paddle", ("paddlepaddle",), "paddle", "torchvision.roi_align", "autograd",
         without=BEYOND),
    Line("mmcv", ("torch", "mmcv"), "mmcv", "mmcv.roi_align", "autograd", calls=0),
    Line("mmcv", ("torch", "mmcv"), "mmcv", "mmcv.roi_align", "autograd", without=AWKWARD),
    Line("mmcv", ("torch", "mmcv"), "mmcv", "mmcv.roi_align max", without=AWKWARD),
)  # fmt: skip


def command(line: Line) -> str:
    """Return the command that repeats a line."""
    words = ["roipool", "verify", "--implementation", line.implementation]
    words += ["--semantics", line.semantics]
    for name, value, usual in (
        ("--backward", line.backward, None),
        ("--arrays", line.arrays, "numpy"),
        ("--dtype", line.dtype, "float32"),
        ("--without", line.without, ""),
        ("--calls", str(line.calls), "300"),
        ("--timeout", str(line.timeout), "20"),
    ):
        if value not in (None, usual):
            words += [name, str(value)]
    return shlex.join([*words, "--python", f"{line.python}/bin/python"])


def report_of(line: Line, python: str) -> Report:
    """Verify one line."""
    request = Request(
        line.implementation, line.semantics, line.backward, arrays=line.arrays,
        dtypes=(line.dtype,), random_calls=line.calls,
        without=tuple(part for part in line.without.split(",") if part),
        process={"python": python, "seconds": float(line.timeout)},
    )  # fmt: skip
    (report,) = request.reports()
    return report


def versions(python: str, packages: tuple[str, ...]) -> str:
    """Return packages with their versions."""
    program = "import sys; from importlib.metadata import version; "
    program += "print(', '.join(f'{name} {version(name)}' for name in sys.argv[1:]))"
    done = subprocess.run([python, "-c", program, *packages], capture_output=True, text=True,
                          check=True)  # fmt: skip
    return done.stdout.strip()


def section(line: Line, python: str) -> list[str]:
    """Return the section of a line, in Markdown."""
    report = report_of(line, python)
    wrong = sum(bool(outcome.failures) for outcome in report.outcomes)
    found = [
        (
            f"## {line.implementation} as {line.semantics}, "
            f"{line.dtype}, {versions(python, line.packages)}"
        ),
        "",
        f"```\n{command(line)}\n```",
        "",
        (
            f"{len(report.outcomes)} calls: {wrong} wrong, {report.rounded} right but for the "
            f"rounding of positions{'; ' + report.stopped if report.stopped else ''}."
        ),
        "",
    ]
    if report.conforms:
        return [*found, "It conforms.", ""]
    for one in report.diagnoses:
        kinds = f" ({', '.join(one.kinds)})" if one.kinds else ""
        words = printable(one.words).replace("|", "\\|")
        found.append(f"- **{one.result} {words}**, in {len(one.calls)} calls{kinds}, such as")
        found.append(f"  `{smallest_call(one, report)[:400]}`")
        if one.subject == "oracle":
            found.append(f"  : {one.finding.comparison.problem}.")
    return [*found, ""]


def main() -> None:
    """Print the report."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--python", action="append", required=True, metavar="NAME=FILE")
    os.chdir(ROOT)
    pythons = dict(one.split("=", 1) for one in parser.parse_args().python)
    today = datetime.datetime.now(datetime.UTC).date()
    print(
        f"{processor()}, {platform.system()} {platform.machine()}, "
        f"Python {platform.python_version()}, NumPy {np.__version__}; {today}.\n"
    )
    for line in LINES:
        if line.python in pythons:
            print("\n".join(section(line, pythons[line.python])), flush=True)
        else:
            print(f"no interpreter for {line.python}", file=sys.stderr)


if __name__ == "__main__":
    main()
