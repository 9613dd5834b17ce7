"""The pages about conformance: the stored report, and the arguments that implementations get."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

SOURCES = next(folder for folder in Path(__file__).parents if (folder / "pyproject.toml").exists())
PAGE = SOURCES / "docs" / "conformance.md"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """Return the script that writes the report."""
    spec = importlib.util.spec_from_file_location(
        "conformance_report", SOURCES / "scripts" / "conformance.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_report_is_as_the_program_writes_it(script: ModuleType) -> None:
    text = PAGE.read_text()
    stored = script.stored_sections(text)
    assert list(stored) == list(script.LINES)
    again = "\n".join(part for one in stored.values() for part in script.rendered(one))
    assert text[text.index("### ") :].strip() == again.strip()


def test_headings_differ_and_calls_are_folded(script: ModuleType) -> None:
    text = PAGE.read_text()
    headings = re.findall(r"^#+ .*", text, re.MULTILINE)
    assert len(set(headings)) == len(headings)
    open_text = re.sub(r"<details>.*?</details>", "", text, flags=re.DOTALL)
    assert "np.array" not in open_text
    assert text.index("| library |") < text.index("<details>")


def test_a_long_call_ends_with_a_whole_number(script: ModuleType) -> None:
    call = "f(" + ", ".join(["123.0625"] * 100) + ")"
    assert script.shortened(call).endswith(", 123.0625, ...")
    assert script.shortened("f(1, 2)") == "f(1, 2)"


def test_argument_forms() -> None:
    forms = pytest.importorskip("_extension.argument_forms")
    rows = {line.split("`")[1]: line for line in forms.table().splitlines()[2:]}
    for name, form in (
        ("onnx.RoiAlign", "`rois` (K, 4): x1, y1, x2, y2, `batch_indices` (K,) |"),
        ("chainer.roi_average_pooling_2d", "`rois` (K, 4): y1, x1, y2, x2, `roi_indices` (K,) |"),
        ("roipool.roi_align_rotated", "(K, 6): image, centre x, centre y, width, height, angle |"),
        ("torchvision.roi_align", "`boxes` (K, 5): image, x1, y1, x2, y2 |"),
        ("tensorflow.crop_and_resize", "; `image` (N, H, W, C) |"),
    ):
        assert rows[name].endswith(form)
    for name in ("roialign_pytorch.crop_and_resize", "roipool.crop_and_resize"):
        assert "y1/(H - 1), x1/(W - 1), y2/(H - 1), x2/(W - 1)" in rows[name]
        assert "(N, H, W, C)" not in rows[name]
    assert "`crop_height`, `crop_width`" in rows["roialign_pytorch.crop_and_resize"]
