"""The page: one HTML file that holds the picture, the boxes, the samples and the script.

Nothing is loaded, and whatever comes from the user stays data: the policy in the page allows this
script alone, by its hash, and the script writes texts only.
"""

from __future__ import annotations

import base64
import hashlib
import html
import io
import json
import math
import re
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roipool.cli.compare.differences import Comparison, distance
from roipool.cli.compare.evaluation import NotExplainedError, Place, Positions, positions_of
from roipool.cli.compare.findings import Findings, Pair
from roipool.cli.compare.record import place_of
from roipool.cli.compare.rules import Rules, rules_of
from roipool.cli.compare.shapes import corners_of
from roipool.cli.compare.telling import most_telling, telling_channel
from roipool.cli.text import finite, printable

__all__ = ["as_html"]

FloatArray = NDArray[np.float32]

_MAX_BOXES = 24
_MAX_NUMBERS = 400_000  # values of bins
_MAX_SIDE = 1024  # of the picture in the page, in pixels
_MAX_SAMPLES = 400  # that are drawn along one axis of a box
_SHADES = 64


def as_html(findings: Findings, options: str) -> str:
    """Return the page.

    Parameters
    ----------
    findings : Findings
        The result.
    options : str
        What was asked for.

    Raises
    ------
    ValueError
        If the map has no pixel to show.
    """
    if findings.features.values.size == 0:
        raise ValueError(f"{findings.features.name}: the map is empty, there is nothing to draw")
    content = _content(findings, options)
    script, style = _part("page.js"), _part("page.css")
    policy = (
        "default-src 'none'; img-src data:; "
        f"script-src '{_hash(script)}'; style-src '{_hash(style)}'; base-uri 'none'"
    )
    texts = {
        "policy": policy,
        "title": html.escape(f"roipool compare: {content['title']}"),
        "style": style,
        "script": script,
        "data": _embedded(content),
    }
    # At once: what is filled in may itself look like a place to fill in.
    return re.sub(r"\{\{(\w+)\}\}", lambda place: texts[place[1]], _part("page.html"))


def _part(name: str) -> str:
    return (files("roipool.cli.compare") / "data" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def _embedded(content: dict[str, Any]) -> str:
    """Return JSON in ASCII that cannot end the element that it stands in."""
    text = json.dumps(finite(content), allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _content(findings: Findings, options: str) -> dict[str, Any]:
    features, problem, comparison = findings.features, findings.problem, findings.forward
    shown = most_telling(comparison, problem.rois, _box_count(comparison))
    image = int(problem.rois[shown[0], 0]) if shown else 0
    channel = None if features.picture is not None else telling_channel(comparison, shown)
    rules = list(
        dict.fromkeys(rule for one in comparison.groups if (rule := rules_of(one.members[0])))
    )
    hidden = len(problem.rois) - len(shown)
    map_size = features.values.shape[2:]
    return {
        "title": printable(features.name),
        "about": f"{len(problem.rois)} boxes, {printable(options)}; "
        f"reference {comparison.reference}",
        "note": _note(channel, image, hidden),
        "size": list(features.size),
        "map": list(map_size),
        "scale": problem.options.spatial_scale,
        "bins": list(problem.options.output_size),
        "coloured": channel is None,
        "picture": _picture(findings, image, channel),
        **_colours(findings, image, channel),
        "boxes": [
            {"number": k + 1, "corners": _rounded(corners_of(problem.rois[k, 1:]))} for k in shown
        ],
        "samples": [[_samples(rule, findings, k) for k in shown] for rule in rules],
        "groups": _groups(findings, shown, channel, rules),
        "farthest": _farthest(comparison, shown),
    }


def _box_count(comparison: Comparison) -> int:
    """Return how many boxes the page may hold: it must open on a phone."""
    _, channels, rows, columns = comparison.groups[0].output.shape
    numbers = len(comparison.groups) * rows * columns * (1 + min(channels, 3))
    return max(min(_MAX_BOXES, _MAX_NUMBERS // numbers), 1)


def _note(channel: int | None, image: int, hidden: int) -> str:
    note = "Left: what it pooled. Right: how far each bin is from the reference; white is equal, "
    note += "black where only one is a number."
    if channel is not None:
        note += f" Shown is channel {channel} of image {image}."
    if hidden:
        note += (
            f" {hidden} boxes on which systems differ less, or that cannot be drawn, are left out."
        )
    return note


def _groups(
    findings: Findings, shown: list[int], channel: int | None, rules: list[Rules]
) -> list[dict[str, Any]]:
    comparison = findings.forward
    home = comparison.reference_group
    pairs = {pair.group: pair for pair in findings.to_reference(comparison)}
    reference = comparison.groups[home].output
    entries = []
    for index, group in enumerate(comparison.groups):
        rule = rules_of(group.members[0])
        picked = group.output[shown]
        channels = picked if channel is None else picked[:, channel : channel + 1]
        entries.append(
            {
                "letter": group.letter,
                "members": group.members,
                "reference": index == home,
                "rules": -1 if rule is None else rules.index(rule),
                "values": _rounded(channels.transpose(0, 2, 3, 1)),
                "apart": _rounded(distance(picked, reference[shown]).max(axis=1)),
                **_why(findings, pairs.get(index)),
            }
        )
    return sorted(entries, key=lambda entry: not entry["reference"])


def _why(findings: Findings, pair: Pair | None) -> dict[str, Any]:
    if pair is None or not pair.apart.where:
        return {"where": None, "pair": [], "reasons": [], "remark": pair and pair.verdict.remark}
    where, groups = pair.apart.where, findings.forward.groups
    values = [groups[pair.group].output[where], groups[pair.against].output[where]]
    return {
        "where": place_of(findings.problem, "forward", where),
        "pair": _rounded(np.array(values)),
        "reasons": [[reason.words, reason.change] for reason in pair.verdict.reasons],
        "remark": pair.verdict.remark,
    }


def _samples(rules: Rules, findings: Findings, box: int) -> dict[str, Any]:
    """Return where the samples of each bin lie, in pixels of the picture."""
    problem = findings.problem
    image = problem.features[int(problem.rois[box, 0]), 0]
    scale = problem.options.spatial_scale
    try:
        found = positions_of(rules, Place(image, problem.rois[box, 1:], (0, 0), problem.options))
    except NotExplainedError:
        rows, columns = problem.options.output_size
        found = Positions([[]] * rows, [[]] * columns)

    def axis(by_bin: list[list[float]]) -> list[list[float]]:
        step = 1 + max(map(len, by_bin)) * len(by_bin) // _MAX_SAMPLES
        return [
            [round(at / scale, 2) for at in places[::step] if abs(at) < 1e6] for places in by_bin
        ]

    # A cell's centre is a whole number in the map, and half a cell further in the picture.
    turn = [found.cosine, found.sine, (found.down + 0.5) / scale, (found.across + 0.5) / scale]
    return {
        "kind": rules.samples,
        "whole": rules.samples == "cells",
        "x": axis(found.x),
        "y": axis(found.y),
        "turn": _rounded(np.array(turn)),
    }


def _farthest(comparison: Comparison, shown: list[int]) -> float:
    """Return the difference that gets the strongest colour: one far system must not fade all."""
    reference = comparison.groups[comparison.reference_group].output[shown]
    greatest = []
    for group in comparison.groups:
        apart = distance(group.output[shown], reference)
        greatest.append(float(apart[np.isfinite(apart)].max(initial=0.0)))
    some = [value for value in greatest if value > 0]
    return min(max(some), 2 * float(np.median(some))) if some else 1.0


def _picture(findings: Findings, image: int, channel: int | None) -> str:
    """Return the picture, or one channel of the map in false colours, as a data address."""
    from PIL import Image

    features = findings.features
    if features.picture is not None:
        pixels = (np.clip(np.nan_to_num(features.picture), 0, 1) * 255).astype(np.uint8)
    else:
        plane = features.values[image, channel]
        low, high = _range(plane)
        share = np.clip((np.nan_to_num(plane) - low) / ((high - low) or 1.0), 0, 1)
        pixels = _shades("viridis")[(share * (_SHADES - 1)).round().astype(int)]
    made = Image.fromarray(np.ascontiguousarray(pixels))
    made.thumbnail((_MAX_SIDE, _MAX_SIDE))
    stream = io.BytesIO()
    made.save(stream, "PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(stream.getvalue()).decode()}"


def _range(plane: FloatArray) -> tuple[float, float]:
    finite = plane[np.isfinite(plane)]
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)


def _colours(findings: Findings, image: int, channel: int | None) -> dict[str, Any]:
    plane = findings.features.values[image, channel or 0]
    return {
        "range": list(_range(plane)),
        "colours": _shades("viridis").tolist(),
        "heat": _shades("heat").tolist(),
    }


# From dark to bright, and from a trace to much: a few colours, between which it is interpolated.
_SCALES = {
    "viridis": ["440154", "414487", "2a788e", "22a884", "7ad151", "fde725"],
    "heat": ["fff6c8", "fed976", "fd8d3c", "e31a1c", "800026"],
}


def _shades(name: str) -> NDArray[np.uint8]:
    fixed = np.array([list(bytes.fromhex(text)) for text in _SCALES[name]], np.float64)
    places = np.linspace(0, len(fixed) - 1, _SHADES)
    columns = [np.interp(places, np.arange(len(fixed)), fixed[:, i]) for i in range(3)]
    return np.stack(columns, axis=1).round().astype(np.uint8)


def _rounded(values: NDArray[Any]) -> Any:
    """Return nested lists of few digits; None for what is not finite."""
    if values.ndim:
        return [_rounded(part) for part in values]
    value = float(values)
    return float(f"{value:.6g}") if math.isfinite(value) else None
