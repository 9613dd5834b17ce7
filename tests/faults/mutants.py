"""Mutants: small changes by operators, on every line that matches: slips that nobody thought of.

``plant.py --mutants 60`` plants a sample of them. They are made anew of the sources, so that no
table follows a change of a line.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from faults import CPU_TESTS, KERNELS

ROOT = Path(__file__).resolve().parents[2]


class Operator(NamedTuple):
    """What is replaced by what, wherever it is written."""

    name: str
    pattern: re.Pattern[str]
    replacement: str | Callable[[str, re.Match[str]], str]


def _swap(name: str, one: str, other: str, before: str = "", after: str = "") -> list[Operator]:
    """Return the operators that put each of two texts in the place of the other.

    `before` and `after` are patterns of what stands beside them.
    """
    return [
        Operator(name, re.compile(before + re.escape(old) + after), new)
        for old, new in ((one, other), (other, one))
    ]


# A statement on the line of its condition.
CHECK = re.compile(r"^\s+if \(.*\) (?:continue|return\b.*|[^=]+ [-+*]?= .*);$")


def _without_bounds(line: str, match: re.Match[str]) -> str:
    """Return a line with the first argument of a call in the place of the call."""
    depth, first = 1, 0
    for end in range(match.end(), len(line)):
        depth += (line[end] == "(") - (line[end] == ")")
        if line[end] == "," and depth == 1 and not first:
            first = end
        if depth == 0 and first:
            held = line[match.end() : first]
            return f"{line[: match.start()]}({held}){line[end + 1 :]}"
    return line  # of several lines


COMPARISONS = [
    *_swap("end of a range", " < ", " <= "),
    *_swap("end of a range", " > ", " >= "),
    *_swap("equality", " == ", " != "),
]
NUMBERS = [
    Operator("+ 1 to + 0", re.compile(r" \+ 1\b(?!\.)"), " + 0"),
    Operator("- 1 to - 0", re.compile(r" - 1\b(?!\.)"), " - 0"),
    *_swap("sign of an offset", " + ", " - "),
]
C_OPERATORS = [
    *COMPARISONS,
    *NUMBERS,
    *_swap("and, or", " && ", " || "),
    *_swap("least, greatest", "minimum", "maximum", r"\b", r"(?=[(<])"),
    *_swap("floor, ceil", "floor_of", "ceil_of", r"\b", r"(?=\()"),
    *_swap("axes", "rows", "columns", r"(?<=[.>])", r"\b"),
    *_swap("axes", "? 0 : 1", "? 1 : 0"),
    Operator("no check", CHECK, "  ;"),
    Operator("no clamp", re.compile(r"\b(?:clamp|minimum|maximum)\("), _without_bounds),
]
PYTHON_OPERATORS = [
    *COMPARISONS,
    *NUMBERS,
    *_swap("and, or", " and ", " or "),
    *_swap("least, greatest", "np.minimum", "np.maximum"),
    *_swap("floor, ceil", "np.floor", "np.ceil"),
    *_swap("side of a search", '"left"', '"right"'),
    Operator("no check", re.compile(r"(?<=    )if .+(?=:$)"), "if False"),
]

COMPAT = "tests/compat tests/arguments"
# What computes, and the tests of each.
FILES = {
    **{
        f"{KERNELS}/{name}": "tests/ops tests/compat"
        for name in (
            "argmax.h config.h crop_and_resize.h deform_roi_pool.h deformable_ps_roi_pool.h "
            "garden_crop.h positions.h precise_roi_pool.h roi_align.h roi_align_rotated.h "
            "roi_pool.h sample.h sinks.h step_align.h"
        ).split()
    },
    **{
        f"{KERNELS}/cpu/{name}": CPU_TESTS
        for name in (
            "average.cpp box_gradients.h call.h dispatch.h maximum.cpp pixels.h plan.h "
            "plan_sinks.h regions.h row_sums.h running_maximum.h schedule.h team.h transpose.h "
            "volumes.h"
        ).split()
    },
    "roipool/_by_class.py": "tests/ops",
    "roipool/_arguments.py": "tests/arguments tests/ops tests/compat",
    "roipool/_boxes.py": "tests/arguments tests/ops tests/compat",
    "roipool/_pooling.py": "tests/arguments tests/ops",
    "roipool/_request.py": "tests/arguments tests/ops",
    "roipool/ops/multilevel_roi_align.py": "tests/ops",
    "roipool/dask/_library.py": "tests/front_ends/test_dask.py",
    **{
        f"roipool/compat/{name}.py": COMPAT
        for name in "_conventions caffe chainer mmcv mxnet onnx tensorflow".split()
    },
}
# Lines that compute nothing: comments, texts, declarations of templates and files included.
SILENT = re.compile(r"^\s*(//|#|\*|\"|template|static_assert|raise |assert )|^\s*(?:f|r)?\"")


class Mutant(NamedTuple):
    """One change of one line; attributes as of a `Fault`."""

    file: str
    number: int  # which one of the lines with this text is changed
    # The line, and its replacement.
    before: str
    after: str
    operator: str
    tests: str

    @property
    def name(self) -> str:
        return f"{self.operator}: {self.after.strip()}"

    @property
    def slip(self) -> str:
        return self.before.strip()

    @property
    def equivalent(self) -> str:
        return EQUIVALENT.get((self.file, self.before.strip(), self.after.strip()), "")

    @property
    def on_gpu(self) -> bool:
        return False

    def planted(self, text: str) -> str:
        """Return the file's text with this mutant."""
        lines = text.split("\n")
        places = [place for place, line in enumerate(lines) if line == self.before]
        lines[places[self.number]] = self.after
        return "\n".join(lines)


def mutants_of(file: str) -> Iterator[Mutant]:
    """Yield the mutants of a file, whatever they change."""
    operators = PYTHON_OPERATORS if file.endswith(".py") else C_OPERATORS
    seen: dict[str, int] = {}
    in_text = False
    for line in (ROOT / file).read_text().split("\n"):
        number = seen[line] = seen.get(line, -1) + 1
        was_text, in_text = in_text, in_text ^ (line.count('"""') % 2 == 1)
        if was_text or in_text or '"""' in line or SILENT.match(line):
            continue
        code = re.split(r"\s(?://|#)\s", line)[0]
        for operator in operators:
            for match in operator.pattern.finditer(code):
                if code[: match.start()].count('"') % 2:
                    continue
                after = (
                    operator.replacement(line, match)
                    if callable(operator.replacement)
                    else line[: match.start()] + operator.replacement + line[match.end() :]
                )
                if after != line:
                    yield Mutant(file, number, line, after, operator.name, FILES[file])


def all_mutants() -> Iterator[Mutant]:
    """Yield the mutants of all files."""
    for file in FILES:
        yield from mutants_of(file)


def sample(count: int, seed: int) -> list[Mutant]:
    """Return so many mutants, of all files and operators by turns."""
    rng = random.Random(seed)
    groups: dict[tuple[str, str], list[Mutant]] = {}
    for mutant in all_mutants():
        groups.setdefault((mutant.file, mutant.operator), []).append(mutant)
    order = list(groups.values())
    rng.shuffle(order)
    for group in order:
        rng.shuffle(group)
    longest = max(map(len, order))
    by_turns = [group[turn] for turn in range(longest) for group in order if turn < len(group)]
    return by_turns[:count]


# By file, line and changed line: why a mutant changes no result.
EQUIVALENT: dict[tuple[str, str, str], str] = {}
