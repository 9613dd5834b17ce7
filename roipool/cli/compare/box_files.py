"""Reading boxes from CSV, JSON, COCO JSON and arrays.

Every reader returns a `Table`: columns ``x1, y1, x2, y2``, with a batch index before them where
the source has one, and the place in the source that each row came from. Coordinates may be NaN or
infinite, since pooling defines what becomes of such boxes; text that is no number is an error.
A file costs memory and time in proportion to its size, which `MAX_BOXES` and the reader of the file
bound.
"""

from __future__ import annotations

import csv
import json
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["MAX_BOXES", "Table", "from_array", "from_csv", "from_json", "to_rois"]

FloatArray = NDArray[np.float32]

MAX_BOXES = 1_000_000  # of a file, of all its images
_MAX_LINE = 100_000  # characters

_COLUMNS = ("batch_index", "x1", "y1", "x2", "y2")
_ALIASES = {
    **{name: name for name in _COLUMNS},
    "xmin": "x1",
    "ymin": "y1",
    "xmax": "x2",
    "ymax": "y2",
    "left": "x1",
    "top": "y1",
    "right": "x2",
    "bottom": "y2",
    **dict.fromkeys(("batch", "batch_idx", "batch_id", "batch_indices"), "batch_index"),
}
_FORM = "boxes have 4 numbers x1, y1, x2, y2, or 5 with the batch index first"


@dataclass(frozen=True)
class Table:
    """Boxes as read: ``rows`` is (K, 4) or (K, 5); ``place`` says where row k came from."""

    rows: NDArray[np.float64]
    place: Callable[[int], str]


def to_rois(table: Table, images: int) -> FloatArray:
    """Check the batch indices and return ``[batch_index, x1, y1, x2, y2]`` rows.

    Parameters
    ----------
    table : Table
        The boxes.
    images : int
        Number of images in the map.

    Returns
    -------
    (K, 5) float32 ndarray
        The boxes; batch index 0 where none was given.

    Raises
    ------
    ValueError
        If a batch index is not a whole number from 0 to ``images - 1``.
    """
    rois = np.zeros((len(table.rows), 5), dtype=np.float32)
    with np.errstate(over="ignore"):
        rois[:, 5 - table.rows.shape[1] :] = table.rows
    index = table.rows[:, 0] if table.rows.shape[1] == 5 else np.zeros(len(rois))
    bad = np.flatnonzero(~((index == np.floor(index)) & (index >= 0) & (index < images)))
    if bad.size:
        raise ValueError(
            f"{table.place(int(bad[0]))}: the batch index is {index[bad[0]]:g}, but the images "
            f"of this map are {_numbered(images)}"
        )
    return rois


def from_array(array: NDArray[Any], name: str) -> Table:
    """Take boxes from an array of shape (K, 4) or (K, 5)."""
    if array.size == 0:
        return _table([], [], name)
    if array.ndim != 2 or array.shape[1] not in (4, 5):
        raise ValueError(f"{name}: needs shape (K, 4) or (K, 5), but it is {array.shape}")
    _check_count(len(array), name)
    return Table(array.astype(np.float64), lambda row: f"{name}, row {row + 1}")


def from_csv(text: str, name: str) -> Table:
    """Read lines of 4 or 5 numbers between commas, semicolons, tabs or spaces.

    Parameters
    ----------
    text : str
        The content. Empty lines and lines that begin with ``#`` are passed over. The first line
        may name the columns, in any order; other columns are then ignored.
    name : str
        The file's name, for error messages.

    Returns
    -------
    Table
        The boxes.

    Raises
    ------
    ValueError
        Naming the line, if it is not as described.
    """
    lines, comments = _lines(text, name)
    if not lines:
        return _table([], [], name)
    split = _splitter(lines[0][1])
    columns = _commented_heading(comments, split)
    if not any(_is_number(field) for field in split(lines[0][1])):
        columns = _heading(split(lines[0][1]), f"{name}, line {lines[0][0]}")
        lines = lines[1:]
    where = f"{name}, line"
    rows = [_csv_row(split(line), columns, f"{where} {number}") for number, line in lines]
    return _table(rows, [number for number, _ in lines], where)


def from_json(text: str, name: str, image: str | None = None) -> Table:
    """Read boxes from JSON.

    Parameters
    ----------
    text : str
        A list of boxes, each 4 or 5 numbers, or an object with ``x1, y1, x2, y2`` and perhaps
        ``batch_index``, or a COCO object with ``bbox`` ``[x, y, width, height]``; or an object
        with such a list under ``boxes``; or a COCO file with ``annotations``.
    name : str
        The file's name, for error messages.
    image : str, optional
        Name of the picture, to find its boxes in a COCO file that has several pictures.

    Returns
    -------
    Table
        The boxes.

    Raises
    ------
    ValueError
        Naming the box, if the content is not as described.
    """
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{name}: not valid JSON ({error})") from error
    if isinstance(content, dict):
        if "annotations" in content:
            items = _list(content["annotations"], f"{name}: 'annotations'")
            wanted = _coco_image(content, name, image)
            return _json_table(items, name, "annotation", wanted)
        if "boxes" not in content:
            raise ValueError(f"{name}: a JSON object needs 'boxes' or COCO's 'annotations'")
        content = content["boxes"]
    return _json_table(_list(content, f"{name}: the boxes"), name, "box", None)


def _table(rows: Sequence[Sequence[float]], numbers: Sequence[int], where: str) -> Table:
    """Make a table of rows, each at ``where`` with its number."""
    width = len(rows[0]) if rows else 4
    for row, number in zip(rows, numbers, strict=True):
        if len(row) != width:
            raise ValueError(f"{where} {number}: {len(row)} numbers, but the first box has {width}")
    array = np.array(rows, dtype=np.float64).reshape(-1, width)
    return Table(array, lambda row: f"{where} {numbers[row]}")


def _check_count(count: int, name: str, what: str = "boxes") -> None:
    if count > MAX_BOXES:
        raise ValueError(f"{name}: holds more than {MAX_BOXES:,} {what}")


def _numbered(images: int) -> str:
    return {0: "none", 1: "only number 0"}.get(images, f"numbered 0 to {images - 1}")


def _number(value: object, place: str) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise ValueError(f"{place}: the number is too large") from None
    if isinstance(value, str) and "_" not in value:  # Python alone reads 1_000 as a number
        try:
            return float(value)
        except ValueError:
            pass
    raise ValueError(f"{place}: {_shown(value)} is not a number")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


# CSV


def _lines(text: str, name: str) -> tuple[list[tuple[int, str]], list[str]]:
    """Separate the numbered lines from the comments."""
    lines, comments = [], []
    for number, line in enumerate(text.splitlines(), start=1):
        if len(line) > _MAX_LINE:
            raise ValueError(f"{name}, line {number}: has more than {_MAX_LINE:,} characters")
        line = line.strip()
        if line.startswith("#"):
            comments.append(line.lstrip("# \t"))
        elif line:
            lines.append((number, line))
        _check_count(len(lines) + len(comments) - 1, name, "lines")  # one may be a heading
    return lines, comments


def _splitter(line: str) -> Callable[[str], list[str]]:
    """Choose how to split lines from the look of one of them."""
    for delimiter in (";", "\t", ","):
        if delimiter in line:
            return lambda text: _cut(text, delimiter)
    return str.split


def _cut(line: str, delimiter: str) -> list[str]:
    fields = next(csv.reader([line], delimiter=delimiter, skipinitialspace=True))
    return [field.strip() for field in fields]


def _heading(fields: list[str], place: str) -> list[str | None]:
    """Return the meaning of each column; None for columns that are not part of a box."""
    columns = _meanings(fields)
    known = [column for column in columns if column is not None]
    if len(set(known)) != len(known) or not set(known) >= set(_COLUMNS[1:]):
        found = textwrap.shorten(", ".join(fields), 60, placeholder=" ...")
        raise ValueError(
            f"{place}: neither numbers nor a heading with x1, y1, x2, y2 and perhaps "
            f"batch_index, but {found!r}"
        )
    return columns


def _commented_heading(
    comments: list[str], split: Callable[[str], list[str]]
) -> list[str | None] | None:
    """Find a heading among the comments, which is where `numpy.savetxt` writes it."""
    for comment in comments:
        columns = _meanings(split(comment))
        if set(columns) >= set(_COLUMNS[1:]):
            return columns
    return None


def _meanings(fields: list[str]) -> list[str | None]:
    return [_ALIASES.get(field.strip("\"'").lower()) for field in fields]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _csv_row(fields: list[str], columns: list[str | None] | None, place: str) -> list[float]:
    if columns is None:
        if len(fields) not in (4, 5):
            raise ValueError(f"{place}: {len(fields)} columns, but {_FORM}")
        return [_number(field, place) for field in fields]
    if len(fields) != len(columns):
        raise ValueError(f"{place}: {len(fields)} columns, but the heading has {len(columns)}")
    by_name = dict(zip(columns, fields, strict=True))
    return [_number(by_name[name], place) for name in _COLUMNS if name in by_name]


# JSON


def _list(value: object, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{what} must be a list, not {_json_type(value)}")
    return value


def _json_type(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a text", type(None): "null"}
    return names.get(type(value)) or _shown(value)


def _json_table(items: list[Any], name: str, noun: str, image_id: object) -> Table:
    rows, numbers = [], []
    where = f"{name}, {noun}"
    seen = image_id
    _check_count(len(items), name)
    for number, item in enumerate(items, start=1):
        place = f"{where} {number}"
        if isinstance(item, dict) and "image_id" in item:
            if image_id is not None and item["image_id"] != image_id:
                continue
            seen = item["image_id"] if seen is None else seen
            if item["image_id"] != seen:
                raise ValueError(
                    f"{place}: has image_id {_shown(item['image_id'])}, earlier ones "
                    f"{_shown(seen)}, and no list of images tells which one is meant"
                )
        rows.append(_json_row(item, noun, place))
        numbers.append(number)
    return _table(rows, numbers, where)


def _json_row(item: Any, noun: str, place: str) -> list[float]:
    if isinstance(item, dict) and "bbox" in item:
        bbox = _list(item["bbox"], f"{place}: 'bbox'")
        if len(bbox) != 4:
            raise ValueError(f"{place}: 'bbox' has {len(bbox)} numbers instead of 4")
        x, y, width, height = _numbers(bbox, place)
        return [x, y, x + width, y + height]
    if noun == "annotation":
        raise ValueError(f"{place}: has no 'bbox'")
    if isinstance(item, dict):
        return _json_object_row(item, place)
    if not isinstance(item, list):
        raise ValueError(f"{place}: must be a list or an object, not {_json_type(item)}")
    if len(item) not in (4, 5):
        raise ValueError(f"{place}: {len(item)} numbers, but {_FORM}")
    return _numbers(item, place)


def _json_object_row(item: dict[str, Any], place: str) -> list[float]:
    by_name = {_ALIASES[key.lower()]: item[key] for key in item if key.lower() in _ALIASES}
    missing = [name for name in _COLUMNS[1:] if name not in by_name]
    if missing:
        raise ValueError(f"{place}: has no {missing[0]!r}")
    return _numbers([by_name[name] for name in _COLUMNS if name in by_name], place)


def _numbers(values: Iterable[object], place: str) -> list[float]:
    for value in values:
        if isinstance(value, str):
            raise ValueError(f"{place}: {_shown(value)} is a text, not a number")
    return [_number(value, place) for value in values]


def _coco_image(content: dict[str, Any], name: str, image: str | None) -> object:
    """Find the image_id whose boxes are wanted; None where every box belongs to one image."""
    listed = _list(content.get("images") or [], f"{name}: 'images'")
    images = [entry for entry in listed if isinstance(entry, dict)]
    if len(images) < 2:
        return None
    if image is None:
        raise ValueError(f"{name}: has {len(images)} images; give the IMAGE that is meant")
    found = [entry for entry in images if _base(entry.get("file_name")) == _base(image)]
    if len(found) != 1 or found[0].get("id") is None:
        several = "several images have" if len(found) > 1 else "no image has"
        raise ValueError(f"{name}: {several} the file_name {_base(image)}")
    identity: object = found[0]["id"]
    return identity


def _base(path: object) -> str:
    return str(path).replace("\\", "/").rpartition("/")[2]
