"""Masks pasted into a picture by the rules of several systems, and how their pixels differ."""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import roipool
from roipool.cli.progress import progress
from roipool.compat import detectron2, matterport, mmdet, torchvision
from roipool.tools.compare import inputs

__all__ = [
    "OPTIONS",
    "Bits",
    "Input",
    "MaskGroup",
    "absent",
    "cell_of",
    "compared",
    "read",
    "words_of",
]

# The options that pasting takes, by their names in a namespace.
OPTIONS = ("image", "boxes", "box_format", "normalized", "masks", "threshold", "html")

Bits = NDArray[np.bool_]
Floats = NDArray[np.float32]


class Input(NamedTuple):
    """Masks (K, 1, h, w), boxes (K, 4) and the picture (rows, columns, 3); what they are."""

    masks: Floats
    boxes: Floats
    picture: Floats
    threshold: float
    about: str

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns of the picture."""
        rows, columns, _ = self.picture.shape
        return rows, columns


class PastingProgram(NamedTuple):
    """A system: from an input and the number of a mask to the pixels that are set; in words."""

    paste: Callable[[Input, slice], Any]
    words: str


_FADED = "bilinear; cells outside the mask are 0"
RULES = {
    "roipool.paste_masks": PastingProgram(
        lambda given, one: roipool.paste_masks(
            given.masks[one], given.boxes[one], given.size, threshold=given.threshold
        ),
        _FADED,
    ),
    "detectron2.paste_masks_in_image": PastingProgram(
        lambda given, one: detectron2.paste_masks_in_image(
            given.masks[one], given.boxes[one], given.size, given.threshold
        ),
        _FADED,
    ),
    "mmdet.do_paste_mask": PastingProgram(
        lambda given, one: (
            mmdet.do_paste_mask(given.masks[one], given.boxes[one], *given.size, skip_empty=False)[
                0
            ]
            >= given.threshold
        ),
        _FADED,
    ),
    "torchvision.paste_masks_in_image": PastingProgram(
        lambda given, one: (
            torchvision.paste_masks_in_image(given.masks[one], given.boxes[one], given.size)
            >= given.threshold
        ),
        "in a frame of zeros, resized to the box cut to whole pixels",
    ),
    "matterport.unmold_mask": PastingProgram(
        lambda given, one: matterport.unmold_mask(
            given.masks[one][0, 0], np.rint(given.boxes[one][0, [1, 0, 3, 2]]), given.size
        ),
        "resized to the box rounded to whole pixels, and cut there",
    ),
}


class MaskGroup(NamedTuple):
    """Systems that set the same pixels of all masks: a letter, their names, and their pixels.

    Of each mask there are the number of pixels set, and how many more and fewer than by the first
    group.
    """

    letter: str
    names: list[str]
    pixels: list[tuple[int, int, int]]

    def paste(self, given: Input, number: int) -> Bits:
        """Return the pixels of a mask."""
        return pasted(self.names[0], given, number)


def read(arguments: argparse.Namespace) -> Input:
    """Read and check masks, boxes and the picture."""
    features = inputs.read_features(arguments.image)
    if features.picture is None:
        raise ValueError(f"{features.name}: --masks needs a picture, not an array")
    form = inputs.BoxForm(arguments.box_format, arguments.normalized)
    boxes = inputs.read_boxes(arguments.boxes, features, form)
    if boxes.rois.shape[1] != 5:
        raise ValueError(f"{boxes.name}: --masks needs boxes without an angle")
    masks = _read_masks(arguments.masks, len(boxes.rois), boxes.name)
    (rows, columns), (height, width) = masks.shape[2:], features.picture.shape[:2]
    about = (
        f"{len(masks)} masks of {rows} x {columns} ({arguments.masks}), boxes ({boxes.name}), "
        f"picture {width} x {height} ({features.name}), threshold {arguments.threshold:g}"
    )
    return Input(masks, boxes.rois[:, 1:], features.picture, arguments.threshold, about)


def _read_masks(path: str, boxes: int, name: str) -> Floats:
    array = inputs.read_array(path, "masks")
    if array.ndim not in (3, 4) or array.shape[1:-2] not in ((), (1,)) or 0 in array.shape[-2:]:
        raise ValueError(f"{path}: masks have shape (K, h, w) or (K, 1, h, w), not {array.shape}")
    if len(array) != boxes:
        raise ValueError(f"{path}: {len(array)} masks, but {boxes} boxes ({name})")
    low, high = (float(function(array, initial=0)) for function in (np.min, np.max))
    if not (low >= 0 and high <= 1):
        raise ValueError(
            f"{path}: masks must be from 0 to 1, but they are from {low:g} to {high:g}; logits "
            "need a sigmoid, bytes a division by 255"
        )
    masks = np.ascontiguousarray(array, np.float32)
    return masks.reshape(len(masks), 1, *masks.shape[-2:])


def pasted(name: str, given: Input, number: int) -> Bits:
    """Return the pixels that a system sets for a mask."""
    pixels: Bits = np.asarray(RULES[name].paste(given, slice(number, number + 1)))
    return pixels.reshape(given.size)


def absent(given: Input) -> dict[str, str]:
    """Return the systems that cannot paste such masks, and why."""
    rows, columns = given.masks.shape[2:]
    reasons = {}
    if rows != columns:
        reasons["detectron2.paste_masks_in_image"] = "masks must be square"
    if given.threshold != 0.5:
        reasons["matterport.unmold_mask"] = "its threshold is 0.5"
    return reasons


def compared(given: Input) -> list[MaskGroup]:
    """Return the systems in groups that set the same pixels; the first one has roipool's."""
    names = [name for name in RULES if name not in absent(given)]
    pixels: dict[str, list[tuple[int, int, int]]] = {name: [] for name in names}
    digests: dict[str, bytes] = dict.fromkeys(pixels, b"")
    with progress(len(given.masks)) as tell:
        for number in range(len(given.masks)):
            tell(f"pasting mask {number + 1}", number)
            first = pasted(names[0], given, number)
            for name, counts in pixels.items():
                own = pasted(name, given, number)
                more, fewer = int((own & ~first).sum()), int((first & ~own).sum())
                counts.append((int(own.sum()), more, fewer))
                digests[name] = hashlib.sha256(digests[name] + np.packbits(own).tobytes()).digest()
    same: dict[bytes, list[str]] = {}
    for name, digest in digests.items():
        same.setdefault(digest, []).append(name)
    return [
        MaskGroup(chr(ord("A") + place), members, pixels[members[0]])
        for place, members in enumerate(same.values())
    ]


def words_of(names: Sequence[str]) -> str:
    """Return the rules of systems in words."""
    return "; ".join(dict.fromkeys(RULES[name].words for name in names))


def _totals(group: MaskGroup) -> list[tuple[int, int, int]]:
    """Return the pixels of each mask, and of all together."""
    columns = list(zip(*group.pixels, strict=True)) or [(), (), ()]
    first, second, third = (sum(column) for column in columns)
    return [*group.pixels, (first, second, third)]


def cell_of(group: MaskGroup, number: int) -> str:
    """Return a cell of the table."""
    count, more, fewer = _totals(group)[number]
    return f"{count:,}" if group.letter == "A" else f"+{more:,} -{fewer:,}"
