"""The page: one HTML file that holds the picture, the boxes, the engine and the script.

The page loads nothing, and user input stays data: the page's content security policy allows only
its own script, by its hash, and the script only writes text. The engine is the CPU's plan code,
compiled to WebAssembly by ``scripts/playground.py``. Values that it cannot compute, such as those
of other libraries, are stored in the page.
"""

from __future__ import annotations

import base64
import hashlib
import html
import io
import json
import math
import re
import zlib
from dataclasses import asdict
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roipool.cli.text import finite, printable
from roipool.tools.compare.differences import Group, PartComparison, distance
from roipool.tools.compare.inputs import FeatureMap, read_boxes, read_features
from roipool.tools.compare.live import LiveSystem, live_systems
from roipool.tools.compare.reasons import affordable, explain
from roipool.tools.compare.result import Findings
from roipool.tools.compare.selection import most_telling, telling_channel

__all__ = ["as_data_url", "as_html", "playground", "static_page"]

FloatArray = NDArray[np.float32]

# The page's scripts: definitions first, and last the one that begins.
_SCRIPTS = (
    *("plans", "state", "map", "values", "geometry", "picture", "zoom", "grids", "words"),
    *("controls", "pointer", "page"),
)

_MAX_BOXES = 24
_MAX_NUMBERS = 400_000  # values of bins stored in the page
_MAX_MAP = 3_000_000  # values of a map that the page computes with
_MAX_SIDE = 1024  # pixels, of a picture that is only shown
_QUALITY = 85  # of that in JPEG
_MAX_REASONS = 180  # explanations to search for
_SHADES = 64
# Absolute and relative, as in `compare`; smaller differences are roundings.
_TOLERANCE = (1e-6, 1e-5)
# The initial systems, if they take part: ROI align with and without the shift of half a cell.
_FIRST = ("torchvision.roi_align", "torchvision.roi_align[aligned]")
_START = {"scale": 0.125, "bins": [3, 3], "sampling": 2, "bin": [1, 1]}


def as_html(findings: Findings, options: str) -> str:
    """Return the page of a comparison.

    Raises
    ------
    ValueError
        If the map has no pixel to show.
    """
    if findings.features.values.size == 0:
        raise ValueError(f"{findings.features.name}: the map is empty, there is nothing to draw")
    return _page(_content(findings, options), "roipool compare")


def playground() -> str:
    """Return the page without a comparison: every system on the package's own picture."""
    features = read_features(None)
    boxes = read_boxes(None, features)
    content = {
        "title": "roipool playground",
        "about": "Everything is computed in this page, by the code that roipool runs on CPUs.",
        "note": "Left: pooled values. Right: difference of each bin to the second system; "
        "white: equal, except for roundings.",
        **_of_map(features, 0, None),
        **_START,
        "boxes": [
            {"number": k + 1, "numbers": box.tolist()} for k, box in enumerate(boxes.rois[:, 1:])
        ],
        "groups": _groups_of_playground(),
        **_of_engine(),
    }
    return _page(content, "")


def _groups_of_playground() -> list[dict[str, Any]]:
    """Group the systems that compute the same, in the order of their first members."""
    same: dict[tuple[Any, ...], list[str]] = {}
    for system in filter(lambda system: system.listed, live_systems()):
        same.setdefault(_computation(system), []).append(system.name)
    order = sorted(same.values(), key=lambda names: not set(names) & set(_FIRST))
    return [
        {
            "members": members,
            "system": next((name for name in _FIRST if name in members), members[0]),
            "reference": _FIRST[0] in members,
        }
        for members in order
    ]


def _computation(system: LiveSystem) -> tuple[Any, ...]:
    """Return all that determines a system's results on a map without NaN and infinity."""
    own = asdict(system)
    for name in ("name", "family", "listed", "call", "lowest", "nan_restarts"):
        del own[name]
    if not system.maximum:
        del own["outside_is_zero"]
    return tuple(own.values())


def _page(content: dict[str, Any], kind: str) -> str:
    script = "".join(map(_script, _SCRIPTS))
    title = ": ".join(filter(None, (kind, content["title"])))
    body = _filled("live.html", script=script, data=_embedded(content))
    return _document(title, body, "live", f"script-src '{_hash(script)}' 'wasm-unsafe-eval'; ")


def static_page(title: str, body: str) -> str:
    """Return a page without a script, from a title and HTML."""
    heading = f"<header><h1>{html.escape(title)}</h1></header>\n"
    return _document(title, f"{heading}<main>\n{body}\n</main>\n", "masks")


def _document(title: str, body: str, kind: str, scripts: str = "") -> str:
    """Return a whole page, whose policy allows its own style and some scripts."""
    style = _part("page.css")
    policy = (
        f"default-src 'none'; img-src data:; {scripts}style-src '{_hash(style)}'; base-uri 'none'"
    )
    title = html.escape(title)
    return _filled("page.html", policy=policy, title=title, style=style, kind=kind, body=body)


def _filled(name: str, **texts: str) -> str:
    """Return a part with its placeholders filled."""
    # In one pass: inserted text may itself look like a placeholder.
    return re.sub(r"\{\{(\w+)\}\}", lambda place: texts[place[1]], _part(name))


def _part(name: str) -> str:
    return (files("roipool.tools.compare") / "data" / "page" / name).read_text(encoding="utf-8")


def _script(name: str) -> str:
    """Return a script without its comments and indentation."""
    text = re.sub(r"^ */\*\*.*?\*/\n", "", _part(f"{name}.js"), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"^ +|^ *//.*\n", "", text, flags=re.MULTILINE)


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def _embedded(content: dict[str, Any]) -> str:
    """Return JSON in ASCII that cannot end the HTML element around it."""
    text = json.dumps(finite(content), allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _in_base64(values: NDArray[Any]) -> str:
    """Return numbers as base64 of little-endian float32."""
    return base64.b64encode(np.ascontiguousarray(values, "<f4").tobytes()).decode()


def _content(findings: Findings, options: str) -> dict[str, Any]:
    features, problem, comparison = findings.features, findings.problem, findings.forward
    is_live = _is_live(features)
    shown = most_telling(comparison, problem.rois, _box_count(comparison, is_live))
    image = int(problem.rois[shown[0], 0]) if shown else 0
    channel = None if features.picture is not None else telling_channel(comparison, shown)
    hidden = len(problem.rois) - len(shown)
    content = {
        "title": printable(features.name),
        "about": "",
        "note": f"{_note(channel, image, hidden, is_live)} Input: {len(problem.rois)} boxes, "
        f"{printable(options)}.",
        **_of_map(features, image, channel),
        "scale": problem.options.spatial_scale,
        "bins": list(problem.options.output_size),
        "sampling": problem.options.sampling_ratio,
        "boxes": [{"number": k + 1, "numbers": problem.rois[k, 1:].tolist()} for k in shown],
        "groups": _groups(findings, shown, channel, is_live),
    }
    return {**content, **(_of_engine() if is_live else {"systems": [], "wasm": ""})}


def _of_engine() -> dict[str, Any]:
    """Return the systems and the WebAssembly module, compressed to keep the page small."""
    module = (files("roipool.tools.compare") / "data" / "playground.wasm").read_bytes()
    return {
        "systems": [asdict(system) for system in live_systems()],
        "wasm": base64.b64encode(zlib.compress(module, 9)).decode(),
    }


def _is_live(features: FeatureMap) -> bool:
    """Return whether the page computes, rather than only showing stored values."""
    channels = 1 if features.picture is None else 3
    _, _, rows, columns = features.values.shape
    return channels * rows * columns <= _MAX_MAP


def _of_map(features: FeatureMap, image: int, channel: int | None) -> dict[str, Any]:
    """Return the page's part of the map: one channel of one image, or a picture."""
    is_live = _is_live(features)
    values = None
    if is_live and _is_picture_itself(features):
        values = "picture"
    elif is_live:
        planes = features.values[image] if channel is None else features.values[image, channel]
        values = _in_base64(planes)
    plane = features.values[image, channel or 0]
    return {
        "size": list(features.size),
        "map": list(features.values.shape[2:]),
        "values": values,
        "coloured": channel is None,
        "picture": _picture(features, image, channel, whole=values == "picture"),
        "range": list(_range(plane)),
        "colours": _shades("viridis").tolist(),
        "heat": _shades("heat").tolist(),
        "tolerance": list(_TOLERANCE),
    }


def _is_picture_itself(features: FeatureMap) -> bool:
    """Return whether the page can compute the map, at any scale, from its picture."""
    picture = features.picture
    if picture is None or picture.size > _MAX_MAP:
        return False
    levels = np.round(picture * np.float32(255))
    return bool(np.array_equal(levels / np.float32(255), picture))


def _box_count(comparison: PartComparison, is_live: bool) -> int:
    """Return how many boxes the page may hold to open on a phone."""
    _, channels, rows, columns = comparison.groups[0].output.shape
    measured = sum(not (is_live and _live_member(group)) for group in comparison.groups)
    numbers = measured * rows * columns * min(channels, 3)
    return max(min(_MAX_BOXES, _MAX_NUMBERS // max(numbers, 1)), 1)


def _live_member(group: Group) -> str | None:
    """Return a member of a group that the page can compute: one computed on the CPU's engine."""
    names = {system.name for system in live_systems()}
    members = sorted(group.members, key=lambda name: name not in _FIRST)
    return next((name for name in members if name in names), None)


def _note(channel: int | None, image: int, hidden: int, is_live: bool) -> str:
    note = "Left: pooled values. Right: difference of each bin to the second system; "
    note += "white: equal, except for roundings; black: only one is a number."
    if channel is not None:
        note += f" Shown is channel {channel} of image {image}."
    if hidden:
        note += (
            f" {hidden} boxes on which systems differ less, or that cannot be drawn, are omitted."
        )
    if not is_live:
        note += " The map is too large for the page: boxes and options cannot be changed."
    return note


def _groups(
    findings: Findings, shown: list[int], channel: int | None, is_live: bool
) -> list[dict[str, Any]]:
    comparison = findings.forward
    home = comparison.reference_group
    most = _MAX_REASONS // max(len(comparison.groups) - 1, 1)
    explained = shown[: affordable(findings.problem, most)]
    entries = []
    for index, group in enumerate(comparison.groups):
        system = _live_member(group) if is_live else None
        entry = {
            "members": group.members,
            "reference": index == home,
            "system": system,
        }
        if system is None:
            channels = group.output if channel is None else group.output[:, channel : channel + 1]
            entry["values"] = [_in_base64(channels[k]) for k in shown]
        if index != home:
            entry["reasons"] = [_why(findings, index, k) for k in explained]
        entries.append(entry)
    return sorted(
        entries, key=lambda entry: (not entry["reference"], not set(entry["members"]) & set(_FIRST))
    )


def _why(findings: Findings, index: int, box: int) -> dict[str, Any]:
    """Explain the difference of a group to the reference's on one box, where it is largest."""
    comparison = findings.forward
    group, home = comparison.groups[index], comparison.groups[comparison.reference_group]
    apart = distance(group.output[box], home.output[box])
    if apart.size == 0 or not apart.max() > _TOLERANCE[0]:
        return {"where": None, "reasons": [], "remark": ""}
    channel, row, column = (int(at) for at in np.unravel_index(int(apart.argmax()), apart.shape))
    verdict = explain(
        findings.problem,
        "forward",
        (group.members[0], home.members[0]),
        (box, channel, row, column),
        (group.output, home.output),
    )
    return {
        "where": [row, column],
        "reasons": [[reason.words, _rounded(reason.change)] for reason in verdict.reasons],
        "remark": verdict.remark,
    }


def _picture(features: FeatureMap, image: int, channel: int | None, whole: bool) -> str:
    """Return the picture, or one channel of the map in false colours, as a data URL."""
    if features.picture is not None:
        levels = np.fmax(features.picture, 0)  # NaN becomes 0
        np.fmin(levels, 1, out=levels)
        levels *= 255
        pixels = np.rint(levels, out=levels).astype(np.uint8)
        return as_data_url(pixels, whole, "PNG" if whole else "JPEG")
    plane = features.values[image, channel]
    low, high = _range(plane)
    share = np.clip((np.nan_to_num(plane) - low) / ((high - low) or 1.0), 0, 1)
    return as_data_url(_shades("viridis")[(share * (_SHADES - 1)).round().astype(int)], whole)


def as_data_url(pixels: NDArray[np.uint8], whole: bool = False, form: str = "PNG") -> str:
    """Return a picture as a data URL, made smaller unless all of its pixels are needed."""
    from PIL import Image

    made = Image.fromarray(np.ascontiguousarray(pixels))
    if not whole:
        made.thumbnail((_MAX_SIDE, _MAX_SIDE))
    stream = io.BytesIO()
    made.save(stream, form, optimize=True, quality=_QUALITY)
    return f"data:image/{form.lower()};base64,{base64.b64encode(stream.getvalue()).decode()}"


def _range(plane: FloatArray) -> tuple[float, float]:
    finite = plane[np.isfinite(plane)]
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)


# Colour maps for values (dark to bright) and differences (pale to strong), interpolated linearly.
_SCALES = {
    "viridis": ["440154", "414487", "2a788e", "22a884", "7ad151", "fde725"],
    "heat": ["fff6c8", "fed976", "fd8d3c", "e31a1c", "800026"],
}


def _shades(name: str) -> NDArray[np.uint8]:
    fixed = np.array([list(bytes.fromhex(text)) for text in _SCALES[name]], np.float64)
    places = np.linspace(0, len(fixed) - 1, _SHADES)
    columns = [np.interp(places, np.arange(len(fixed)), fixed[:, i]) for i in range(3)]
    return np.stack(columns, axis=1).round().astype(np.uint8)


def _rounded(value: float) -> float | None:
    """Round a number to few digits; return None if it is not finite."""
    return float(f"{value:.6g}") if math.isfinite(value) else None
