"""Writes docs/conformance.md: where installed libraries differ from their definitions.

    python scripts/conformance.py --python torch=VENV/bin/python --python mxnet=... > report.md

runs every line of the table below with its interpreter, from the root of the source tree. Each
section of the report is the result of one command. With ``--stored FILE``, the sections of an
earlier report replace those of missing interpreters.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

from roipool._system_info import processor
from roipool.cli.text import printable
from roipool.systems import shown_name
from roipool.tools.conformance.names import resolved
from roipool.tools.conformance.reports import Report, ReportRequest, smallest_call

ROOT = Path(__file__).resolve().parents[1]
AWKWARD = "non-finite-boxes,huge-boxes"
LONGEST = 400  # characters of a call; longer calls are shortened
NO_RULE = "matches no known variation"


class Line(NamedTuple):
    """One command: the interpreter, its packages, and the options of ``roipool verify``."""

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
    """Return the command of a line."""
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
    """Run the verification of a line."""
    request = ReportRequest(
        line.implementation,
        line.semantics,
        line.backward,
        arrays=line.arrays,
        dtypes=(line.dtype,),
        random_calls=line.calls,
        without=tuple(part for part in line.without.split(",") if part),
        process={"python": python, "seconds": float(line.timeout)},
    )
    (report,) = request.reports()
    return report


def versions(python: str, packages: tuple[str, ...]) -> str:
    """Return the names and versions of packages."""
    program = "import sys; from importlib.metadata import version; "
    program += "print(', '.join(f'{name} {version(name)}' for name in sys.argv[1:]))"
    done = subprocess.run(
        [python, "-c", program, *packages], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


class Item(NamedTuple):
    """One difference of a library, and a call that shows it."""

    results: str
    words: str
    calls: int
    kinds: str
    call: str
    problem: str


class Section(NamedTuple):
    """The section of a line in the report."""

    line: Line
    versions: str
    counts: str
    items: list[Item]


def section(line: Line, python: str) -> Section:
    """Verify a line."""
    report = report_of(line, python)
    wrong = sum(bool(outcome.failures) for outcome in report.outcomes)
    counts = (
        f"{len(report.outcomes)} calls: {wrong} wrong, {report.rounded} right but for the "
        f"rounding of positions{'; ' + report.stopped if report.stopped else ''}."
    )
    items = [
        Item(
            one.results,
            printable(one.words),
            len(one.calls),
            ", ".join(one.kinds),
            smallest_call(one, report),
            str(one.finding.comparison.problem) if one.subject == "oracle" else "",
        )
        for one in report.diagnoses
    ]
    return Section(line, versions(python, line.packages), counts, items)


def rendered(content: Section) -> list[str]:
    """Return a section in Markdown: the differences and, folded, the command and calls."""
    lines = [f"### {heading(content.line)}", "", f"{content.versions}. {content.counts}", ""]
    groups: dict[str, list[Item]] = {}
    for item in content.items:
        groups.setdefault(item.words, []).append(item)
    for words, items in groups.items():
        where = "; ".join(
            f"{item.results} in {item.calls} call{'s' if item.calls > 1 else ''}"
            + (f" ({item.kinds})" if item.kinds else "")
            for item in items
        )
        lines.append(f"- **{words.replace('|', chr(92) + '|')}**: {where}")
    lines += [] if groups else ["It conforms."]
    lines += ["", "<details>", "<summary>the command and the calls</summary>", ""]
    lines += [f"```\n{command(content.line)}\n```", ""]
    for items in groups.values():
        for item in items:
            lines += [f"{item.results}: {item.words}", "", f"```\n{shortened(item.call)}\n```", ""]
            lines += [f"{item.problem}.", ""] if item.problem else []
    return [*lines, "</details>", ""]


def heading(line: Line) -> str:
    """Return the unique heading of a line."""
    left = line.without.replace(",", ", ")
    return (
        f"{line.implementation} as {shown_name(resolved(line.semantics)[0])}, {line.dtype}, "
        f"{'catalogue' if not line.calls else f'catalogue and {line.calls} random calls'}"
        f"{' without ' + left if left else ''}"
    )


def shortened(call: str) -> str:
    """Return a call, shortened after a complete number if it is long."""
    if len(call) < LONGEST:
        return call
    return call[: call.rindex(", ", 0, LONGEST) + 1] + " ..."


def stored_sections(text: str) -> dict[Line, Section]:
    """Return the sections of an earlier report, in the current or the previous format."""
    sections = {}
    for part in re.split(r"^##+ (?=.* as )", text, flags=re.MULTILINE)[1:]:
        line = _line_of(part)
        if line is not None:
            sections[line] = Section(line, _versions_in(part), _counts_in(part), _items_in(part))
    return sections


def _line_of(part: str) -> Line | None:
    (text,) = re.findall(r"^roipool verify .*$", part, re.MULTILINE)[:1]
    return next((line for line in LINES if command(line) == text), None)


def _versions_in(part: str) -> str:
    before = re.match(r".*, float\d+, (.*)", part)
    now = re.search(r"^(.*)\. \d+ calls: ", part, re.MULTILINE)
    return now[1] if now else before[1] if before else ""


def _counts_in(part: str) -> str:
    (counts,) = re.findall(r"\d+ calls: .*", part)[:1]
    return str(counts)


def _items_in(part: str) -> list[Item]:
    old = re.findall(
        r"^- \*\*(pooled|argmax\w*|gradient) (.*)\*\*, in (\d+) calls(?: \((.*)\))?, such as\n"
        r"  `(.*)`\n(?:  : (.*)\.\n)?",
        part,
        re.MULTILINE,
    )
    if old:
        return [
            Item(
                result,
                words.replace("follows no rule that is known here", NO_RULE),
                int(calls),
                kinds,
                call,
                problem,
            )
            for result, words, calls, kinds, call, problem in old
        ]
    calls = re.findall(r"^[a-z, ]+: .*\n\n```\n(.*)\n```\n\n(?:(\d.*)\.\n)?", part, re.MULTILINE)
    where = [
        (result.strip("; "), words.replace(chr(92) + "|", "|"), int(count), kinds)
        for words, places in re.findall(r"^- \*\*(.*)\*\*: (.*)$", part, re.MULTILINE)
        for result, count, kinds in re.findall(
            r"([a-z, ]+?) in (\d+) calls?(?: \(([^)]*)\))?", places
        )
    ]
    return [Item(*one, *shown) for one, shown in zip(where, calls, strict=True)]


def main() -> None:
    """Print the report."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--python", action="append", default=[], metavar="NAME=FILE")
    parser.add_argument(
        "--stored",
        type=Path,
        metavar="FILE",
        help="an earlier report, used for sections without an interpreter",
    )
    given = parser.parse_args()
    stored = stored_sections(given.stored.read_text()) if given.stored else {}
    os.chdir(ROOT)
    pythons = dict(one.split("=", 1) for one in given.python)
    if pythons:
        today = datetime.datetime.now(datetime.UTC).date()
        print(
            f"{processor()}, {platform.system()} {platform.machine()}, "
            f"Python {platform.python_version()}, NumPy {np.__version__}; {today}.\n"
        )
    for line in LINES:
        if line.python in pythons:
            print("\n".join(rendered(section(line, pythons[line.python]))), flush=True)
        elif line in stored:
            print("\n".join(rendered(stored[line])), flush=True)
        else:
            print(f"no interpreter for {line.python}", file=sys.stderr)


if __name__ == "__main__":
    main()
