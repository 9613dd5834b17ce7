"""``roipool compare --masks``: pixels that systems set, the page, and wrong input."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from roipool import cli, reference

SIZE = (30, 44)  # of the picture
BOXES = np.array([[3.2, 4.9, 21.7, 20.3], [-4, 10, 9.5, 33], [20, 2, 40, 26]])
MASKS = np.random.default_rng(0).random((3, 6, 6)).astype(np.float32)
MASKS[0, 0, :2] = 0, 1  # the least and the most that a mask may hold


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a picture, masks and boxes, in which the command runs."""
    monkeypatch.chdir(tmp_path)
    pixels = np.random.default_rng(1).integers(0, 256, (*SIZE, 3)).astype(np.uint8)
    Image.fromarray(pixels).save("picture.png")
    np.save("masks.npy", MASKS)
    np.savez("masks.npz", masks=MASKS[:, None], others=BOXES)
    np.save("boxes.npy", BOXES)
    np.save("wide.npy", MASKS[:, :5])
    np.save("few.npy", MASKS[:2])
    np.save("logits.npy", MASKS * 9 - 4)
    np.save("nan.npy", np.full_like(MASKS, np.nan))
    np.save("none.npy", np.zeros((0, 6, 6)))
    np.save("no_boxes.npy", np.zeros((0, 4)))
    np.save("turned.npy", np.ones((3, 5)))
    np.save("flat.npy", MASKS[0])
    return tmp_path


def compare(*options: str, masks: str = "masks.npy", boxes: str = "boxes.npy") -> int:
    return cli.main(["compare", "picture.png", "--masks", masks, "--boxes", boxes, *options])


def expected(threshold: float = 0.5) -> dict[str, list[Any]]:
    """Return the pixels of each mask by the oracle, as the table has them."""
    faded = reference.paste_masks(MASKS, BOXES, SIZE) >= threshold
    middle, reach = (BOXES[:, 2:] + BOXES[:, :2]) / 2, (BOXES[:, 2:] - BOXES[:, :2]) / 2 * 8 / 6
    whole = np.hstack([np.trunc(middle - reach), np.trunc(middle + reach) + 1])
    framed = reference.paste_masks(MASKS, whole, SIZE, rule="resized", frame=1) >= threshold
    cut = reference.paste_masks(MASKS, np.rint(BOXES), SIZE, rule="cut") >= threshold
    counts = [f"{each.sum():,}" for each in faded]
    others = [
        [
            f"+{(own & ~first).sum():,} -{(first & ~own).sum():,}"
            for own, first in zip(other, faded, strict=True)
        ]
        for other in (framed, cut)
    ]
    return {"A": counts, "B": others[0], "C": others[1]}


@pytest.mark.parametrize("masks", ["masks.npy", "masks.npz"])
def test_pixels_are_those_of_the_oracle(
    files: Path, capsys: pytest.CaptureFixture[str], masks: str
) -> None:
    assert compare(masks=masks) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = [re.split("  +", line.strip()) for line in lines if re.match(r" +\d", line)]
    columns = list(zip(*(row[1:] for row in rows), strict=True))
    assert columns == [tuple(column) for column in expected().values()]
    assert "A  roipool.paste_masks, detectron2.paste_masks_in_image, mmdet.do_paste_mask" in lines
    assert "B  torchvision.paste_masks_in_image" in lines
    assert "C  matterport.unmold_mask" in lines


def test_systems_that_cannot_paste(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare("--threshold", "0.25", masks="wide.npy") == 0
    text = capsys.readouterr().out
    assert "absent: detectron2.paste_masks_in_image: masks must be square" in text
    assert "absent: matterport.unmold_mask: its threshold is 0.5" in text
    assert "A  roipool.paste_masks, mmdet.do_paste_mask" in text


def test_a_threshold_of_its_own(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare("--threshold", "0.25") == 0
    assert expected(0.25)["A"][0] in capsys.readouterr().out


def test_no_masks(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare("--html", "page.html", masks="none.npy", boxes="no_boxes.npy") == 0
    assert "All set the same pixels." in capsys.readouterr().out


def test_the_page_shows_each_mask(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("<b>.npy").write_bytes(Path("masks.npy").read_bytes())
    assert compare("--html", "page.html", masks="<b>.npy") == 0
    page = Path("page.html").read_text()
    assert page.count("<section>") == 3
    assert page.count('<img src="data:image/png;base64,') == page.count("<img") == 8
    assert "<script" not in page
    assert "<b>.npy" not in page  # but escaped
    for letter, cells in expected().items():
        for cell in cells:
            assert f"{letter}: {'as A' if cell == '+0 -0' else f'{cell} pixels'}" in page


@pytest.mark.parametrize(
    ("options", "files_of", "text"),
    [
        ([], {"masks": "few.npy"}, "few.npy: 2 masks, but 3 boxes (boxes.npy)"),
        ([], {"masks": "flat.npy"}, "masks have shape (K, h, w) or (K, 1, h, w), not (6, 6)"),
        ([], {"masks": "logits.npy"}, "masks must be from 0 to 1, but they are from"),
        ([], {"masks": "nan.npy"}, "masks must be from 0 to 1, but they are from nan"),
        ([], {"masks": "missing.npy"}, "missing.npy: No such file or directory"),
        ([], {"masks": "picture.png"}, "picture.png: not an array that can be read"),
        ([], {"boxes": "turned.npy"}, "turned.npy"),
        (["--box-format", "cxcywha"], {"boxes": "turned.npy"}, "--masks needs boxes without"),
        (["--threshold", "0"], {}, "'0' is not a number above 0, up to 1"),
        (["--threshold", "nan"], {}, "'nan' is not a number of 0 or more"),
        (["--output-size", "3"], {}, "--output-size: not with --masks"),
        (["--systems", "torchvision.*"], {}, "--systems: not with --masks"),
        (["--json", "-"], {}, "--json: not with --masks"),
        (["--html", "masks.npy"], {}, "masks.npy: would overwrite the input"),
        (["--html", "no/page.html"], {}, "no/page.html: cannot be written"),
    ],
)
def test_wrong_input(
    files: Path,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    files_of: dict[str, str],
    text: str,
) -> None:
    assert compare(*options, **files_of) == 2
    error = capsys.readouterr().err
    assert text in error
    assert error.count("\n") == 1


def test_masks_are_pasted_into_pictures(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["compare", "boxes.npy", "--masks", "masks.npy", "--boxes", "boxes.npy"]) == 2
    assert "boxes.npy: --masks needs a picture, not an array" in capsys.readouterr().err
    assert cli.main(["compare", "--threshold", "0.3"]) == 2
    assert "--threshold is for --masks" in capsys.readouterr().err
