"""The meanings of a box's numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["FORMS", "MAP_FORMS", "NEEDS_VOLUME", "VOLUME_FORMS", "BoxNumbers", "axis_of"]


@dataclass(frozen=True)
class BoxNumbers:
    """The meaning of a box's numbers."""

    columns: tuple[str, ...]  # their names; a header or JSON object may list them in any order
    # Converts the numbers, one array each, to x1, y1, x2, y2; for rotated boxes to centre, sides
    # and angle; for boxes of volumes to x1, y1, z1, x2, y2, z2.
    corners: Callable[..., tuple[Any, ...]]
    # Converts COCO's x, y, width and height to the numbers. Without it, the boxes are of volumes.
    of_coco: Callable[[float, float, float, float], list[float]] | None = None
    # Whether the numbers are fractions of the last row and column, as those of TensorFlow.
    of_last_cell: bool = False
    # Whether they are fractions of the size, and a class comes first, as those of YOLO.
    of_size: bool = False

    @property
    def is_volume(self) -> bool:
        """Whether the boxes are of volumes."""
        return self.of_coco is None

    @property
    def described(self) -> str:
        """Description for error messages."""
        count = len(self.columns)
        names = ", ".join(self.columns)
        return f"boxes have {count} numbers {names}, or {count + 1} with the batch index first"

    def fits(self, count: int) -> bool:
        """Return whether a box may have so many numbers."""
        return count - len(self.columns) in (0, 1)


FORMS = {
    "xyxy": BoxNumbers(
        ("x1", "y1", "x2", "y2"),
        lambda x1, y1, x2, y2: (x1, y1, x2, y2),
        lambda x, y, w, h: [x, y, x + w, y + h],
    ),
    "yxyx": BoxNumbers(
        ("y1", "x1", "y2", "x2"),
        lambda y1, x1, y2, x2: (x1, y1, x2, y2),
        lambda x, y, w, h: [y, x, y + h, x + w],
    ),
    "tensorflow": BoxNumbers(
        ("y1", "x1", "y2", "x2"),
        lambda y1, x1, y2, x2: (x1, y1, x2, y2),
        lambda x, y, w, h: [y, x, y + h, x + w],
        of_last_cell=True,
    ),
    "xywh": BoxNumbers(
        ("x", "y", "w", "h"),
        lambda x, y, w, h: (x, y, x + w, y + h),
        lambda x, y, w, h: [x, y, w, h],
    ),
    "cxcywh": BoxNumbers(
        ("cx", "cy", "w", "h"),
        lambda cx, cy, w, h: (cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2),
        lambda x, y, w, h: [x + w / 2, y + h / 2, w, h],
    ),
    "yolo": BoxNumbers(
        ("cx", "cy", "w", "h"),
        lambda cx, cy, w, h: (cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2),
        lambda x, y, w, h: [x + w / 2, y + h / 2, w, h],
        of_size=True,
    ),
    "cxcywha": BoxNumbers(
        ("cx", "cy", "w", "h", "angle"),
        lambda cx, cy, w, h, angle: (cx, cy, w, h, angle),
        lambda x, y, w, h: [x + w / 2, y + h / 2, w, h, 0.0],
    ),
    "xyzxyz": BoxNumbers(
        ("x1", "y1", "z1", "x2", "y2", "z2"),
        lambda x1, y1, z1, x2, y2, z2: (x1, y1, z1, x2, y2, z2),
    ),
    "zyxzyx": BoxNumbers(
        ("z1", "y1", "x1", "z2", "y2", "x2"),
        lambda z1, y1, x1, z2, y2, x2: (x1, y1, z1, x2, y2, z2),
    ),
    "yxyxzz": BoxNumbers(
        ("y1", "x1", "y2", "x2", "z1", "z2"),
        lambda y1, x1, y2, x2, z1, z2: (x1, y1, z1, x2, y2, z2),
    ),
    "xyzwhd": BoxNumbers(
        ("x", "y", "z", "w", "h", "d"),
        lambda x, y, z, w, h, d: (x, y, z, x + w, y + h, z + d),
    ),
    "cxcyczwhd": BoxNumbers(
        ("cx", "cy", "cz", "w", "h", "d"),
        lambda x, y, z, w, h, d: (
            *(x - w / 2, y - h / 2, z - d / 2),
            *(x + w / 2, y + h / 2, z + d / 2),
        ),
    ),
}
# Names of the forms of boxes of maps, and of volumes.
MAP_FORMS = tuple(name for name, form in FORMS.items() if not form.is_volume)
VOLUME_FORMS = tuple(name for name, form in FORMS.items() if form.is_volume)

NEEDS_VOLUME = "for boxes of a volume, give --volume"


def axis_of(column: str) -> int | None:
    """Return the axis x, y or z, counted from 0, of a number; None for the angle."""
    letter = column.removeprefix("c")[0]
    return next((axis for axis, its in enumerate(("xw", "yh", "zd")) if letter in its), None)
