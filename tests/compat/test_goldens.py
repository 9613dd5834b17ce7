"""Every compat system against the goldens of its released wheel (tests/data/goldens).

``PYTHONPATH=tests python tests/compat/test_goldens.py`` prints how many entries agree bit for bit
and how many within a few float32 ulps; none is on the other side of a decision.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from _support.backends import Backend, thorough_on_the_emulator
from _support.golden_data import FOLDER

from roipool.systems import SYSTEMS
from roipool.verification.released import PROGRAMS, ReleasedProgram


class Agreement(NamedTuple):
    """Counts of entries that agree bit for bit, agree within ulps, and differ by a decision."""

    bits: int
    ulps: int
    decisions: int


def program_on(backend: Backend, name: str) -> ReleasedProgram:
    """Return a program; a GPU adds gradients of cells up in an order of its own."""
    program = PROGRAMS[name]
    exact = program.answer.exact and not (backend.is_gpu and "gradient" in name)
    return program._replace(answer=program.answer._replace(exact=exact))


def agreement(program: ReleasedProgram, backend: Backend) -> Agreement:
    """Count over all calls with an answer of the system."""
    library = backend.library
    result = [program.agreement(golden, library) for golden in program.answer.goldens(FOLDER)]
    bits, wrong = sum(one.equal for one in result), sum(one.wrong for one in result)
    return Agreement(bits, sum(one.count for one in result) - bits - wrong, wrong)


@thorough_on_the_emulator
@pytest.mark.parametrize("name", PROGRAMS)
def test_agrees_with_the_released_wheel(
    name: str, backend: Backend, record_property: Callable[..., None]
) -> None:
    program = program_on(backend, name)
    result = agreement(program, backend)
    record_property("agreement", result._asdict())
    assert result.bits > 500 or "box gradient" in name
    assert result.decisions == 0
    assert result.ulps == 0 or not program.answer.exact


# Goldens with separate inputs, and the tests that read them.
ELSEWHERE = {
    "chainer": "compat/test_compat.py",
    "paddle_levels": "compat/test_pyramids.py",
    "openvino_pyramids": "compat/test_pyramids.py",
    "chainercv": "compat/test_position_sensitive.py",
    "masks": "compat/test_masks.py",
    "mdt_align_3d": "compat/test_volumes.py",
    "megengine": "compat/test_megengine.py",
    "megengine_deformable": "compat/test_deformable_ps.py",
    "megengine_pooling": "compat/test_megengine.py",
    "model_garden": "compat/test_model_garden.py",
    "mxnet_deformable": "compat/test_deformable_ps.py",
    "mxnet_ps": "compat/test_position_sensitive.py",
    "openvino_deformable": "compat/test_deformable_ps.py",
    "paddle_ps": "compat/test_position_sensitive.py",
    "openvino_ps": "compat/test_position_sensitive.py",
    "pinned_crops": "ops/test_crop_ends.py",
    "antialias": "ops/test_antialias.py",
    "torchvision_multiscale": "compat/test_pyramids.py",
    "torchvision_ps": "compat/test_position_sensitive.py",
    "torchvision_quantised": "compat/test_quantised.py",
}


def test_rows_name_the_files_of_other_tests() -> None:
    assert {file for row in SYSTEMS.values() for file in row.stored} <= ELSEWHERE.keys()


def test_every_golden_file_is_used() -> None:
    tests = FOLDER.parents[1]
    used = {(program.answer.file, program.answer.key) for program in PROGRAMS.values()}
    for path in FOLDER.glob("*.npz"):
        if path.stem.endswith("inputs"):
            continue
        if path.stem in ELSEWHERE:
            assert path.stem in (tests / ELSEWHERE[path.stem]).read_text()
            continue
        keys = {key.split("_", 1)[1] for key in np.load(path) if "_" in key}
        assert {(path.stem, key) for key in keys} <= used, (
            f"{path.name} has answers that nothing reads: add them to `goldens` of a row in "
            "roipool/systems/FRAMEWORK.py"
        )


if __name__ == "__main__":
    print(f"{'':35}{'bit for bit':>12}{'within ulps':>12}{'decisions':>10}")
    for title, entry in PROGRAMS.items():
        count = agreement(entry, Backend("cpu"))
        print(f"{title:35}{count.bits:12}{count.ulps:12}{count.decisions:10}")
