"""Boxes of annotation programs: Pascal VOC, LabelMe, GeoJSON and YOLO.

Each function returns the bounds x1, y1, x2, y2 of every object in pixels, except YOLO's, which are
centres and sides as fractions. Objects without numbers are an error that names them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

__all__ = ["is_geojson", "of_geojson", "of_labelme", "of_voc", "of_yolo"]

Corners = tuple[float, float, float, float]

_GEOMETRIES = (
    "Point MultiPoint LineString MultiLineString Polygon MultiPolygon GeometryCollection".split()
)
_MOST_DEPTH = 8  # of lists of coordinates


def of_voc(text: str, name: str) -> list[Corners]:
    """Return the boxes of a Pascal VOC file, with its own numbers."""
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise ValueError(f"{name}: not valid XML ({error})") from error
    found = []
    for number, box in enumerate(root.iter("bndbox"), start=1):
        place = f"{name}, object {number}"
        corners = [_number(box.findtext(end), f"{place}: {end}") for end in _ENDS]
        found.append((corners[0], corners[1], corners[2], corners[3]))
    if not found and root.tag != "annotation":
        raise ValueError(f"{name}: XML without 'bndbox', which boxes of Pascal VOC have")
    return found


_ENDS = ("xmin", "ymin", "xmax", "ymax")


def of_labelme(content: dict[str, Any], name: str) -> list[Corners]:
    """Return the bounds of the shapes of a LabelMe file."""
    shapes = content["shapes"]
    if not isinstance(shapes, list):
        raise ValueError(f"{name}: 'shapes' must be a list")
    found = []
    for number, shape in enumerate(shapes, start=1):
        place = f"{name}, shape {number}"
        points = list(_points(shape.get("points") if isinstance(shape, dict) else None, place))
        if shape.get("shape_type") == "circle" and len(points) == 2:
            (x, y), rim = points[0], math.dist(*points)
            points = [(x - rim, y - rim), (x + rim, y + rim)]
        found.append(_bounds(points))
    return found


def is_geojson(content: dict[str, Any]) -> bool:
    """Return whether a JSON object is GeoJSON."""
    return content.get("type") in ("FeatureCollection", "Feature", *_GEOMETRIES)


def of_geojson(content: dict[str, Any], name: str) -> list[Corners]:
    """Return the bounds of the features of a GeoJSON file, whose coordinates are pixels."""
    features = content.get("features") if content["type"] == "FeatureCollection" else [content]
    if not isinstance(features, list):
        raise ValueError(f"{name}: 'features' must be a list")
    found = []
    for number, feature in enumerate(features, start=1):
        place = f"{name}, feature {number}"
        geometry = feature.get("geometry", feature) if isinstance(feature, dict) else None
        if not isinstance(geometry, dict):
            raise ValueError(f"{place}: has no geometry")
        parts = geometry.get("geometries", [geometry])
        points = [
            point
            for part in (parts if isinstance(parts, list) else [])
            if isinstance(part, dict)
            for point in _points(part.get("coordinates"), place)
        ]
        if not points:
            raise ValueError(f"{place}: has no coordinates")
        found.append(_bounds(points))
    return found


def of_yolo(fields: list[str], place: str) -> list[float]:
    """Return centre and sides of a line: a class and a box, with a confidence, or a polygon."""
    numbers = [_number(field, place) for field in fields]
    if not numbers or numbers[0] != int(numbers[0] if math.isfinite(numbers[0]) else -0.5):
        raise ValueError(f"{place}: {fields[:1]} is not the number of a class")
    if len(numbers) in (5, 6):
        return numbers[1:5]
    if len(numbers) < 7 or len(numbers) % 2 == 0:
        raise ValueError(
            f"{place}: {len(numbers)} numbers, but a box of YOLO has a class, centre x and y, "
            "width, height, and perhaps a confidence; a polygon a class, and x and y of each point"
        )
    x1, y1, x2, y2 = _bounds(list(zip(numbers[1::2], numbers[2::2], strict=True)))
    return [(x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1]


def _points(value: Any, place: str, depth: int = 0) -> Iterator[tuple[float, float]]:
    """Yield the points of nested lists."""
    if not isinstance(value, list) or not value or depth > _MOST_DEPTH:
        raise ValueError(f"{place}: has no points")
    if isinstance(value[0], list):
        for part in value:
            yield from _points(part, place, depth + 1)
    elif len(value) < 2:
        raise ValueError(f"{place}: a point has x and y")
    else:
        yield _number(value[0], place), _number(value[1], place)


def _number(value: Any, place: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError(f"{place}: is not a number")
    try:
        return float(value)
    except (ValueError, OverflowError):
        raise ValueError(f"{place}: {value!r:.60} is not a number") from None


def _bounds(points: list[tuple[float, float]]) -> Corners:
    across, down = zip(*points, strict=True)
    return min(across), min(down), max(across), max(down)
