"""Reads boxes from CSV, JSON, COCO JSON and arrays.

Every reader returns a `Table`: the numbers of a `BoxNumbers`, preceded by a batch index if the
source has one, and the place in the source of each row. Coordinates may be NaN or infinite, since
pooling is defined for such boxes; text that is not a number is an error. Memory and time are
proportional to the size of the file, which `MAX_BOXES` and the readers limit.
"""

from __future__ import annotations

import csv
import json
import textwrap
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roipool._box_forms import FORMS, NEEDS_VOLUME, BoxNumbers, axis_of
from roipool.tools.compare import annotation_files

__all__ = [
    "MAX_BOXES",
    "Table",
    "from_array",
    "from_corners",
    "from_csv",
    "from_json",
    "to_rois",
]

FloatArray = NDArray[np.float32]

MAX_BOXES = 1_000_000  # in a file, over all its images
_MAX_LINE = 100_000  # characters

_INDEX = "batch_index"
_ALIASES = {
    **{name: name for name in ("x1", "y1", "x2", "y2", "x", "y", "w", "h", "cx", "cy", "angle")},
    **{name: name for name in ("z1", "z2", "z", "d", "cz")},
    "xmin": "x1",
    "ymin": "y1",
    "xmax": "x2",
    "ymax": "y2",
    "left": "x1",
    "top": "y1",
    "right": "x2",
    "bottom": "y2",
    "width": "w",
    "height": "h",
    "zmin": "z1",
    "zmax": "z2",
    "depth": "d",
    "theta": "angle",
    **dict.fromkeys((_INDEX, "batch", "batch_idx", "batch_id", "batch_indices"), _INDEX),
}


@dataclass(frozen=True)
class Table:
    """Boxes read from a source, one per row; ``place`` describes the origin of row k."""

    rows: NDArray[np.float64]
    place: Callable[[int], str]


def to_rois(
    table: Table,
    images: int,
    form: BoxNumbers = FORMS["xyxy"],
    *,
    size: tuple[float, ...] | None = None,
    degrees: bool = False,
) -> FloatArray:
    """Convert a table to rows of batch index and box, and check the batch indices.

    Parameters
    ----------
    images : int
        Number of images in the map.
    size : tuple of float, optional
        Width and height of the picture, or width, height and depth of the volume, if the numbers
        are fractions of it.
    degrees : bool
        Whether angles are in degrees.

    Returns
    -------
    (K, 5), (K, 6) or (K, 7) float32 ndarray
        ``[batch_index, x1, y1, x2, y2]``, or ``[batch_index, cx, cy, width, height, angle]`` with
        the angle in radians, or ``[batch_index, x1, y1, z1, x2, y2, z2]``. The batch index is 0 if
        the table has none.

    Raises
    ------
    ValueError
        If a batch index is not a whole number from 0 to ``images - 1``.
    """
    count = len(form.columns)
    indexed = table.rows.shape[1] > count
    index = table.rows[:, 0] if indexed else np.zeros(len(table.rows))
    bad = np.flatnonzero(~((index == np.floor(index)) & (index >= 0) & (index < images)))
    if bad.size:
        raise ValueError(
            f"{table.place(int(bad[0]))}: the batch index is {index[bad[0]]:g}, but the images "
            f"of this map are {_numbered(images)}{_hint_at_yolo(table.rows, form)}"
        )
    numbers = table.rows[:, indexed : indexed + count].T.copy()
    if size is not None:
        for column, axis in enumerate(map(axis_of, form.columns)):
            if axis is not None:
                numbers[column] *= size[axis]
    if degrees and "angle" in form.columns:
        numbers[-1] = np.radians(numbers[-1])
    with np.errstate(over="ignore", invalid="ignore"):
        return np.stack([index, *form.corners(*numbers)], axis=1).astype(np.float32)


def from_array(array: NDArray[Any], name: str, form: BoxNumbers = FORMS["xyxy"]) -> Table:
    """Read boxes from an array with a column for each number, perhaps after a batch index."""
    count = len(form.columns)
    if array.size == 0:
        return _table([], [], name, form)
    if array.ndim != 2 or not form.fits(array.shape[1]):
        hint = _hint(array.shape[1], form) if array.ndim == 2 else ""
        raise ValueError(
            f"{name}: needs shape (K, {count}) or (K, {count + 1}), but it is {array.shape}{hint}"
        )
    _check_count(len(array), name)
    return Table(array.astype(np.float64), lambda row: f"{name}, row {row + 1}")


def from_csv(
    text: str, name: str, form: BoxNumbers = FORMS["xyxy"], image: str | None = None
) -> Table:
    """Read lines of numbers separated by commas, semicolons, tabs or spaces, one box per line.

    Parameters
    ----------
    text : str
        The content. Empty lines and lines that begin with ``#`` are skipped. The first line may
        be a header that names the columns, in any order; other columns are then ignored.
    image : str, optional
        Name of the picture, which selects its boxes where a column ``filename`` has several.

    Raises
    ------
    ValueError
        If a line, which the message names, is not as described.
    """
    lines, comments = _lines(text, name)
    if not lines:
        return _table([], [], name, form)
    split = _splitter(lines[0][1])
    where = f"{name}, line"
    if form.of_size:
        labels = [
            annotation_files.of_yolo(split(line), f"{where} {number}") for number, line in lines
        ]
        return _table(labels, [number for number, _ in lines], where, form)
    columns = _commented_heading(comments, split, form)
    if not any(_is_number(field) for field in split(lines[0][1])):
        heading = split(lines[0][1])
        columns = _heading(heading, f"{name}, line {lines[0][0]}", form)
        lines = _of_picture(lines[1:], split, heading, name, image)
    _check_axes(columns or (), f"{name}, heading", form)
    rows = [_csv_row(split(line), columns, f"{where} {number}", form) for number, line in lines]
    return _table(rows, [number for number, _ in lines], where, form)


def from_json(
    text: str, name: str, image: str | None = None, form: BoxNumbers = FORMS["xyxy"]
) -> Table:
    """Read boxes from JSON.

    Parameters
    ----------
    text : str
        A list of boxes; an object with such a list under ``boxes``; or a COCO file with
        ``annotations``. A box is a list of the numbers of `form`, optionally after a batch index;
        an object with their names and, optionally, ``batch_index``; or a COCO object with ``bbox``
        ``[x, y, width, height]``.
    image : str, optional
        Name of the picture, which selects its boxes in a COCO file with several pictures.
    form : Form
        The meaning of the numbers, except of COCO's ``bbox``.

    Raises
    ------
    ValueError
        If a box, which the message names, is not as described.
    """
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{name}: not valid JSON ({error})") from error
    if isinstance(content, dict):
        if "annotations" in content:
            items = _list(content["annotations"], f"{name}: 'annotations'")
            wanted = _coco_image(content, name, image)
            return _json_table(items, name, "annotation", wanted, form)
        if "shapes" in content:
            return from_corners(annotation_files.of_labelme(content, name), name, "shape", form)
        if annotation_files.is_geojson(content):
            return from_corners(annotation_files.of_geojson(content, name), name, "feature", form)
        if "boxes" not in content:
            raise ValueError(
                f"{name}: a JSON object needs 'boxes', COCO's 'annotations', LabelMe's 'shapes' or "
                "GeoJSON's 'features'"
            )
        content = content["boxes"]
    return _json_table(_list(content, f"{name}: the boxes"), name, "box", None, form)


def _table(
    rows: Sequence[Sequence[float]], numbers: Sequence[int], where: str, form: BoxNumbers
) -> Table:
    """Make a table of rows; the place of each is ``where`` and its number."""
    width = len(rows[0]) if rows else len(form.columns)
    for row, number in zip(rows, numbers, strict=True):
        if len(row) != width:
            raise ValueError(f"{where} {number}: {len(row)} numbers, but the first box has {width}")
    array = np.array(rows, dtype=np.float64).reshape(-1, width)
    return Table(array, lambda row: f"{where} {numbers[row]}")


def _check_count(count: int, name: str, what: str = "boxes") -> None:
    if count > MAX_BOXES:
        raise ValueError(f"{name}: contains more than {MAX_BOXES:,} {what}")


def _hint_at_yolo(rows: NDArray[np.float64], form: BoxNumbers) -> str:
    """Return a hint at YOLO's labels, whose class was taken for the batch index."""
    are_fractions = len(form.columns) == 4 and ((rows[:, 1:] >= 0) & (rows[:, 1:] <= 1)).all()
    return "; labels of YOLO need --box-format yolo" if are_fractions else ""


def _numbered(images: int) -> str:
    return {0: "none", 1: "only number 0"}.get(images, f"numbered 0 to {images - 1}")


def _number(value: object, place: str) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise ValueError(f"{place}: the number is too large") from None
    if isinstance(value, str) and "_" not in value:  # only Python reads 1_000 as a number
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
    """Separate the lines, with their numbers, from the comments."""
    lines, comments = [], []
    for number, line in enumerate(text.splitlines(), start=1):
        if len(line) > _MAX_LINE:
            raise ValueError(f"{name}, line {number}: has more than {_MAX_LINE:,} characters")
        line = line.strip()
        if line.startswith("#"):
            comments.append(line.lstrip("# \t"))
        elif line:
            lines.append((number, line))
        _check_count(len(lines) + len(comments) - 1, name, "lines")  # one may be a header
    return lines, comments


def _splitter(line: str) -> Callable[[str], list[str]]:
    """Choose how to split lines by the separators in one of them."""
    for delimiter in (";", "\t", ","):
        if delimiter in line:
            return lambda text: _cut(text, delimiter)
    return str.split


def _cut(line: str, delimiter: str) -> list[str]:
    fields = next(csv.reader([line], delimiter=delimiter, skipinitialspace=True))
    return [field.strip() for field in fields]


def _heading(fields: list[str], place: str, form: BoxNumbers) -> list[str | None]:
    """Return the meaning of each column; None for columns that are not part of a box."""
    columns = _meanings(fields)
    known = [column for column in columns if column in (_INDEX, *form.columns)]
    if len(set(known)) != len(known) or not set(known) >= set(form.columns):
        line = textwrap.shorten(", ".join(fields), 60, placeholder=" ...")
        fits = [
            name
            for name, other in FORMS.items()
            if set(columns) >= set(other.columns)
            and other.is_volume == form.is_volume
            and not (other.of_last_cell or other.of_size)
        ]
        hint = f" (--box-format {fits[-1]} has these)" if fits else ""
        raise ValueError(
            f"{place}: neither numbers nor a heading with {', '.join(form.columns)} and perhaps "
            f"{_INDEX}, but {line!r}{hint}"
        )
    return columns


def _of_picture(
    lines: list[tuple[int, str]],
    split: Callable[[str], list[str]],
    heading: list[str],
    name: str,
    image: str | None,
) -> list[tuple[int, str]]:
    """Return the lines of a picture, if a column has the names of several."""
    headings = [field.strip("\"'").lower() for field in heading]
    if "filename" not in headings:
        return lines
    at = headings.index("filename")
    named = [(split(line)[at : at + 1], number, line) for number, line in lines]
    if len({tuple(each[0]) for each in named}) < 2:
        return lines
    if image is None:
        raise ValueError(f"{name}: has boxes of several pictures; give the IMAGE that is meant")
    found = [(number, line) for each, number, line in named if each and _is_of(each[0], image)]
    if not found:
        raise ValueError(f"{name}: no line has the filename {_base(image)}")
    return found


def _commented_heading(
    comments: list[str], split: Callable[[str], list[str]], form: BoxNumbers
) -> list[str | None] | None:
    """Find a header among the comments, where `numpy.savetxt` writes it."""
    for comment in comments:
        columns = _meanings(split(comment))
        if set(columns) >= set(form.columns):
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


def _csv_row(
    fields: list[str], columns: list[str | None] | None, place: str, form: BoxNumbers
) -> list[float]:
    if columns is None:
        _check_numbers(len(fields), place, form, "columns")
        return [_number(field, place) for field in fields]
    if len(fields) != len(columns):
        raise ValueError(f"{place}: {len(fields)} columns, but the heading has {len(columns)}")
    by_name = dict(zip(columns, fields, strict=True))
    names = (_INDEX, *form.columns)
    return [_number(by_name[name], place) for name in names if name in by_name]


def _check_numbers(count: int, place: str, form: BoxNumbers, what: str) -> None:
    if not form.fits(count):
        raise ValueError(f"{place}: {count} {what}, but {form.described}{_hint(count, form)}")


def _check_axes(columns: Collection[str | None], place: str, form: BoxNumbers) -> None:
    """Reject boxes of a map whose names are those of a volume's."""
    if not form.is_volume and {"z1", "z2"} <= set(columns):
        raise ValueError(f"{place}: has z1 and z2, but a map has no depth; {NEEDS_VOLUME}")


def _hint(count: int, form: BoxNumbers) -> str:
    """Return a hint at the option for volumes, if boxes of so many numbers may be of one."""
    return f"; {NEEDS_VOLUME}" if not form.is_volume and FORMS["xyzxyz"].fits(count) else ""


# JSON


def _list(value: object, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{what} must be a list, not {_json_type(value)}")
    return value


def _json_type(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a text", type(None): "null"}
    return names.get(type(value)) or _shown(value)


def _json_table(
    items: list[Any], name: str, noun: str, image_id: object, form: BoxNumbers
) -> Table:
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
        rows.append(_json_row(item, noun, place, form))
        numbers.append(number)
    return _table(rows, numbers, where, form)


def _json_row(item: Any, noun: str, place: str, form: BoxNumbers) -> list[float]:
    if isinstance(item, dict) and "bbox" in item:
        bbox = _list(item["bbox"], f"{place}: 'bbox'")
        if len(bbox) != 4:
            raise ValueError(f"{place}: 'bbox' has {len(bbox)} numbers instead of 4")
        if form.of_coco is None:
            raise ValueError(f"{place}: 'bbox' is a box of a picture, not of a volume")
        _check_pixels(form, f"{place}: 'bbox'")
        x, y, width, height = _numbers(bbox, place)
        return form.of_coco(x, y, width, height)
    if noun == "annotation":
        raise ValueError(f"{place}: has no 'bbox'")
    if isinstance(item, dict):
        return _json_object_row(item, place, form)
    if not isinstance(item, list):
        raise ValueError(f"{place}: must be a list or an object, not {_json_type(item)}")
    _check_numbers(len(item), place, form, "numbers")
    return _numbers(item, place)


def _check_pixels(form: BoxNumbers, what: str) -> None:
    """Reject fractions where a file has pixels."""
    if form.of_last_cell or form.of_size:
        raise ValueError(f"{what} is in pixels, not in fractions")


def from_corners(
    found: list[annotation_files.Corners], name: str, noun: str, form: BoxNumbers
) -> Table:
    """Return boxes of a file that says itself what they are, in pixels."""
    _check_count(len(found), name)
    if form.of_coco is None:
        raise ValueError(f"{name}: has boxes of a picture, not of a volume")
    _check_pixels(form, name)
    rows = [form.of_coco(x1, y1, x2 - x1, y2 - y1) for x1, y1, x2, y2 in found]
    return _table(rows, range(1, len(rows) + 1), f"{name}, {noun}", form)


def _json_object_row(item: dict[str, Any], place: str, form: BoxNumbers) -> list[float]:
    by_name = {_ALIASES[key.lower()]: item[key] for key in item if key.lower() in _ALIASES}
    _check_axes(by_name, place, form)
    missing = [name for name in form.columns if name not in by_name]
    if missing:
        raise ValueError(f"{place}: has no {missing[0]!r}")
    names = (_INDEX, *form.columns)
    return _numbers([by_name[name] for name in names if name in by_name], place)


def _numbers(values: Iterable[object], place: str) -> list[float]:
    for value in values:
        if isinstance(value, str):
            raise ValueError(f"{place}: {_shown(value)} is a string, not a number")
    return [_number(value, place) for value in values]


def _coco_image(content: dict[str, Any], name: str, image: str | None) -> object:
    """Return the image_id of the picture, or None if the file has only one image."""
    listed = _list(content.get("images") or [], f"{name}: 'images'")
    images = [entry for entry in listed if isinstance(entry, dict)]
    if len(images) < 2:
        return None
    if image is None:
        raise ValueError(f"{name}: has {len(images)} images; give the IMAGE that is meant")
    matches = [entry for entry in images if _base(entry.get("file_name")) == _base(image)]
    matches = matches or [entry for entry in images if _is_of(entry.get("file_name"), image)]
    if len(matches) != 1 or matches[0].get("id") is None:
        several = "several images have" if len(matches) > 1 else "no image has"
        raise ValueError(f"{name}: {several} the file_name {_base(image)}")
    identity: object = matches[0]["id"]
    return identity


def _base(path: object) -> str:
    return str(path).replace("\\", "/").rpartition("/")[2]


def _is_of(file_name: object, image: str) -> bool:
    """Return whether a name is that of a picture, or of a map made from it: photo.npy."""
    name, wanted = _base(file_name), _base(image)
    stems = name.rpartition(".")[0], wanted.rpartition(".")[0]
    is_map = wanted.lower().endswith((".npy", ".npz", ".safetensors"))
    return name == wanted or (is_map and stems[0] == stems[1])
