"""The pytest plugin, run in separate pytest processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2]

TESTS = """
import numpy as np
import pytest
from roipool.compat import torchvision

@pytest.mark.roipool("torchvision.roi_pool", random_calls=25)
def test_right(conforms):
    conforms(torchvision.roi_pool)

@pytest.mark.roipool(
    "torchvision.roi_align", random_calls=0, without=["empty-arrays"],
    options={"sampling_ratio": 2, "aligned": True},
)
def test_wrong(conforms):
    def align(input, boxes, output_size, spatial_scale=1.0, sampling_ratio=-1, aligned=False):
        first = np.concatenate([np.zeros_like(boxes[:, :1]), boxes[:, 1:]], axis=1)
        return torchvision.roi_align(
            input, first, output_size, spatial_scale, sampling_ratio, aligned
        )
    conforms(align)
"""


def pytest_in(folder: Path, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pytest on a file of tests."""
    (folder / "test_theirs.py").write_text(text)
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "COLUMNS": "200"}
    environment.pop("PYTEST_ADDOPTS", None)
    options = "-p pytest_roipool -p no:cacheprovider --strict-markers -W error -q".split()
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, *arguments, "test_theirs.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )


@pytest.mark.thorough
def test_a_test_for_every_case(tmp_path: Path) -> None:
    done = pytest_in(tmp_path, TESTS, "-rA")
    assert done.returncode == 1, done.stdout + done.stderr
    passed = [line for line in done.stdout.splitlines() if line.startswith("PASSED")]
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    assert any("test_right[on halves-float32-cpu]" in line for line in passed)
    assert any("test_right[random calls 20 to 39-float32-cpu]" in line for line in passed)
    assert not any("test_right" in line for line in failed)
    assert any("test_wrong[images out of order-float32-cpu]" in line for line in failed)
    rule = "ignores the batch index: every box is on the first image"
    assert all(f"- {rule}" in line for line in failed), failed
    assert "DOES NOT CONFORM" in done.stdout
    assert "smallest: roi_align(input=np." in done.stdout


ROUNDED = """
import numpy as np
import pytest
from roipool.compat import torchvision

@pytest.mark.roipool(
    "torchvision.roi_pool", random_calls=0, without=["non-finite-boxes", "huge-boxes"]
)
def test_rounded(conforms):
    def roi_pool(input, boxes, output_size, spatial_scale=1.0):
        cells = np.rint(boxes * np.float32(spatial_scale))
        cells[:, 0] = boxes[:, 0]
        return torchvision.roi_pool(input, cells, output_size, 1.0)
    conforms(roi_pool)
"""


@pytest.mark.thorough
def test_the_summary_names_the_rule(tmp_path: Path) -> None:
    """The rule in the summary comes from all calls, even if another fits one test's calls."""
    done = pytest_in(tmp_path, ROUNDED, "--junit-xml=found.xml")
    assert done.returncode == 1, done.stdout + done.stderr
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    rule = "rounds halves to even instead of away from zero"
    assert len(failed) > 5
    assert all(line.endswith(f"] - {rule}") for line in failed), failed
    cases = ET.parse(tmp_path / "found.xml").iter("failure")
    assert {case.attrib["message"] for case in cases} == {rule}


@pytest.mark.thorough
def test_mistakes_of_use(tmp_path: Path) -> None:
    for text, message in (
        ("def test_x(conforms): pass", "the fixture 'conforms' needs a mark such as"),
        (
            "import pytest\n@pytest.mark.roipool('x')\ndef test_x(conforms): pass",
            "semantics: 'x' is not one of roipool.roi_pool",
        ),
        (
            "import pytest\n@pytest.mark.roipool('roi_pool', wrong=3)\ndef test_x(conforms): pass",
            "unexpected keyword argument 'wrong'",
        ),
    ):
        done = pytest_in(tmp_path, text)
        assert done.returncode != 0
        assert message in done.stdout + done.stderr


def test_it_costs_nothing_where_it_is_not_used(tmp_path: Path) -> None:
    text = "import sys\ndef test_x(): assert not {'roipool', 'numpy'} & set(sys.modules)\n"
    done = pytest_in(tmp_path, text)
    assert done.returncode == 0, done.stdout


@pytest.mark.thorough
def test_the_documents_example(tmp_path: Path) -> None:
    page = SOURCES / "docs" / "testing.md"
    if not page.exists():
        pytest.skip("no documents in this tree")
    blocks = re.findall(r"```python\n# (\S+\.py)\n(.*?)```", page.read_text(), re.DOTALL)
    names = [name for name, _ in blocks]
    assert names == ["mine.py", "test_mine.py", "test_mine_by_case.py"]
    for name, text in blocks:
        (tmp_path / name).write_text(text)
    done = pytest_in(tmp_path, "", "--import-mode=prepend", *names[1:])
    assert done.returncode == 0, done.stdout
    assert "passed" in done.stdout.splitlines()[-1]
