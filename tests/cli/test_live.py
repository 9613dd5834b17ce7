"""The page's script, run in node, computes the same as the CPU, bit for bit."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import roipool
from roipool import _cpu
from roipool._boxes import Regions
from roipool._definitions import MOVED, POINTWISE, TRAITS, Definition
from roipool._pooling import Call
from roipool._request import MaxRules, Pooling
from roipool.tools.compare.engines import ENGINES
from roipool.tools.compare.live import LiveSystem, live_systems
from roipool.tools.compare.problem import Options, Problem
from roipool.tools.compare.systems import LISTED, SYSTEMS
from roipool.verification.catalogue import ENTRIES, Entry

pytestmark = pytest.mark.thorough

NODE = shutil.which("node")
DATA = Path(str(files("roipool.tools.compare") / "data"))
# Entries with adaptive grids of more samples than 32 bits can count.
ENDLESS = ("huge", "huge, many bins")
SYSTEM_BY_NAME = {system.name: system for system in live_systems()}
needs_node = pytest.mark.skipif(NODE is None, reason="there is no node")


class Question(NamedTuple):
    """One box for a system; `what` selects "weights", "pooled" (as digests), "values" or "box"."""

    system: LiveSystem
    box: Sequence[float]
    options: Options
    what: str
    sampling: Any = None

    @property
    def as_json(self) -> dict[str, Any]:
        options = self.options
        sampling = options.sampling_ratio if self.sampling is None else self.sampling
        return {
            "system": asdict(self.system),
            "box": in_base64(np.array(self.box)),
            "options": {
                "bins": options.output_size,
                "scale": options.spatial_scale,
                "sampling": sampling,
            },
            "what": self.what,
        }


def in_base64(array: Any) -> str:
    with np.errstate(over="ignore"):
        return base64.b64encode(np.ascontiguousarray(array, np.float32).tobytes()).decode()


def from_base64(text: str) -> Any:
    return np.frombuffer(base64.b64decode(text), np.float32)


def digest(values: Any) -> str:
    return hashlib.sha256((np.ascontiguousarray(values) + np.float32(0)).tobytes()).hexdigest()


def ask_node(questions: Sequence[tuple[Any, Sequence[Question]]], folder: Path) -> list[str]:
    """Return the script's answers to all questions, each on a map (C, H, W)."""
    assert NODE is not None
    content = [
        {
            "map": {
                **dict(zip(("channels", "rows", "columns"), maps.shape, strict=True)),
                "values": in_base64(maps),
            },
            "asked": [question.as_json for question in asked],
        }
        for maps, asked in questions
    ]
    (folder / "questions.json").write_text(json.dumps(content))
    program = Path(__file__).parents[1] / "_support" / "run_plans.js"
    paths = DATA, folder / "questions.json", folder / "answers.json"
    subprocess.run([NODE, program, *paths], check=True)
    found: list[str] = json.loads((folder / "answers.json").read_text())
    return found


def plain_system(definition: str, maximum: bool, aligned: bool) -> LiveSystem:
    """Return a system that consists of a definition only."""
    return LiveSystem(
        name=definition,
        family=definition,
        listed=True,
        definition=definition,
        maximum=maximum,
        aligned=aligned,
        angle_scale=1.0,
        empty=0.0,
        lowest=None,
        outside_is_zero=maximum,
        nan_restarts=False,
        scaled=True,
        sampled=True,
        boxes="region" if definition in POINTWISE else "corners",
        call="",
    )


def boxes_of(entry: Entry, definition: str) -> Any:
    """Return an entry's boxes in the engine's form, in float32."""
    with np.errstate(all="ignore"):
        if TRAITS[definition].kind == "crop":
            last = np.maximum(np.array(entry.shape[:1:-1] * 2) - 1, 1)
            return np.float32(entry.table()[:, 1:] * entry.scale / last)
        table = np.float32(entry.table()[:, 1:])
        if definition not in POINTWISE:
            return table
        x1, y1, x2, y2 = table.T
        angles = np.float32(np.arange(len(table)) * 0.7)
        return np.stack([(x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1, angles], axis=1)


def pair(sampling: int | tuple[int, int]) -> tuple[int, int]:
    return sampling if isinstance(sampling, tuple) else (sampling, sampling)


def variants_of(entry: Entry, definition: str) -> Iterator[tuple[int | tuple[int, int], bool]]:
    """Yield the sampling ratios and alignments that affect a definition."""
    if TRAITS[definition].kind in ("grid", "points"):
        return itertools.product(entry.samplings, entry.alignments)
    return iter([(0, True)])


@pytest.fixture
def without_fused_sums() -> Iterator[None]:
    """Make averages round each product, unlike with fused multiply-add."""
    sets = _cpu.instruction_sets()
    if len(sets) == 1 or "baseline" not in sets:
        pytest.skip("every engine here may fuse products and sums")
    used = _cpu.instruction_set()
    _cpu.use_instruction_set("baseline")
    yield
    _cpu.use_instruction_set(used)


@needs_node
@pytest.mark.usefixtures("without_fused_sums")
# The page has no definitions that read offsets.
@pytest.mark.parametrize(
    "definition", [name for name in TRAITS if name not in (*MOVED, "garden_crop")]
)
def test_the_plans_are_the_cpus(definition: str, tmp_path: Path) -> None:
    """Every cell's weight in every bin of a mean, and the values of maxima: all bits are equal.

    The CPU's weights are what it makes of maps that each have one cell of 1.
    """
    questions, expected, names = [], [], []
    for entry in ENTRIES:
        if entry.is_rotated or entry.name in ENDLESS or entry.shape[0] == 0:
            continue
        for variant in variants_of(entry, definition):
            for name, maps, asked, answers in comparisons(entry, definition, *variant):
                questions.append((maps, asked))
                expected += answers
                names += [f"{entry}, {variant}, {name}, box {k}" for k in range(len(asked))]
    assert len(expected) > 200
    answers = ask_node(questions, tmp_path)
    differing = [
        name for name, one, other in zip(names, expected, answers, strict=True) if one != other
    ]
    assert not differing


def comparisons(
    entry: Entry, definition: str, sampling: int | tuple[int, int], aligned: bool
) -> Iterator[tuple[str, Any, list[Question], list[str]]]:
    """Yield a name, a map, questions about its boxes, and the CPU's answers."""
    _, _, rows, columns = entry.shape
    boxes = np.unique(boxes_of(entry, definition), axis=0)
    options = Options(entry.size, entry.scale)
    regions = Regions(np.ascontiguousarray(boxes), np.zeros(len(boxes), np.int64))
    placed = Definition(definition, entry.scale, pair(sampling), aligned)
    pooling = Pooling(placed, entry.size, rules=MaxRules(outside_is_zero=True))

    def asked(maximum: bool, what: str) -> list[Question]:
        system = plain_system(definition, maximum, aligned)
        return [Question(system, box, options, what, pair(sampling)) for box in boxes]

    cells = rows * columns
    if 0 < cells <= 1000 and len(boxes):
        maps = np.eye(cells, dtype=np.float32).reshape(1, cells, rows, columns)
        with Call(maps=maps) as call:
            pooled = call.average([maps], regions, pooling)
        weights = pooled.reshape(len(boxes), cells, -1).transpose(0, 2, 1)
        yield (
            "weights",
            np.zeros((1, rows, columns)),
            asked(False, "weights"),
            list(map(digest, weights)),
        )
    if definition not in POINTWISE and definition != "precise_roi_pool":
        maps = np.float32(entry.features()[:1])
        with Call(maps=maps) as call:
            pooled, _ = call.maximum(maps, regions, pooling)
        yield "maximum", maps[0], asked(True, "pooled"), list(map(digest, pooled))


BOXES = [(1.3, 1.1, 7.6, 6.2), (-3.5, 2, 12, 5.25), (6, 6, 2, 2.5), (0, 0, 9, 8), (3, 3, 3, 3)]
OPTIONS = [Options((2, 3)), Options((1, 1), 0.5, 2), Options((3, 2), 1 / 3, 1)]


@needs_node
def test_systems_pool_as_on_the_cpu(tmp_path: Path) -> None:
    """Sums may differ in their order; maxima are equal."""
    maps = np.random.default_rng(0).standard_normal((3, 8, 9), np.float32)
    rois = np.array([(0, *box) for box in BOXES], np.float32)
    names = [name for name in SYSTEM_BY_NAME if name in LISTED]
    asked = [
        Question(SYSTEM_BY_NAME[name], box, options, "values")
        for name in names
        for options in OPTIONS
        for box in rois[:, 1:]
    ]
    answers = iter(ask_node([(maps, asked)], tmp_path))
    for name in names:
        for options in OPTIONS:
            pooled = ENGINES["cpu"](SYSTEMS[name])(Problem(maps[None], rois, options), "forward")
            for expected in pooled:
                found = from_base64(next(answers)).reshape(expected.shape)
                if SYSTEM_BY_NAME[name].maximum:
                    np.testing.assert_array_equal(found, expected, err_msg=name)
                else:
                    np.testing.assert_allclose(found, expected, 1e-5, 1e-6, err_msg=name)


@needs_node
@pytest.mark.parametrize("name", SYSTEM_BY_NAME)
def test_the_call_does_the_same(name: str, tmp_path: Path) -> None:
    """The call that the page's button copies, with the page's numbers filled in."""
    system = SYSTEM_BY_NAME[name]
    maps = np.random.default_rng(0).standard_normal((2, 8, 9), np.float32)
    box = (1.5, 1.25, 14, 11.5, 0.5) if system.boxes == "region" else (1.5, 1.25, 14, 11.5)
    options = Options((2, 3), 0.5, 2)
    questions = [Question(system, box, options, what) for what in ("values", "box")]
    values, numbers = map(from_base64, ask_node([(maps, questions)], tmp_path))
    filled = {
        **dict(zip(("x1", "y1", "x2", "y2"), box, strict=False)),
        **{f"b{i}": float(number) for i, number in enumerate(numbers)},
        "rows": 2,
        "columns": 3,
        "scale": 0.5,
        "sampling": 2,
    }
    call = system.call.format(**filled)
    found = eval(call, {"np": np, "roipool": roipool, "features": maps[None]})
    pooled = found[0] if isinstance(found, tuple) else found
    if "transpose" in call:
        pooled = pooled.transpose(0, 3, 1, 2)
    np.testing.assert_allclose(values.reshape(pooled.shape[1:]), pooled[0], 1e-5, 1e-6)


def test_every_system_is_live() -> None:
    assert {*LISTED} <= set(SYSTEM_BY_NAME)
    assert {system.definition for system in live_systems()} <= set(TRAITS)


# ---- The committed module


def test_the_module_is_small_and_needs_nothing() -> None:
    module = (DATA / "playground.wasm").read_bytes()
    assert len(module) < 45_000
    assert 2 not in sections(module)  # of imports


def sections(module: bytes) -> list[int]:
    found, at = [], 8
    while at < len(module):
        found.append(module[at])
        at, size, shift = at + 1, 0, 0
        while True:
            byte = module[at]
            size, shift, at = size | (byte & 127) << shift, shift + 7, at + 1
            if byte < 128:
                break
        at += size
    return found
