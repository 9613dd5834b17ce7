"""The parts of the figure that are independent of its layout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from roipool.tools.compare.differences import PartComparison, distance
from roipool.tools.compare.inputs import FeatureMap
from roipool.tools.compare.shapes import corners_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable

__all__ = [
    "ACCENT",
    "CHOSEN",
    "View",
    "difference_colours",
    "difference_scale",
    "draw_boxes",
    "enlarge",
]

FloatArray = NDArray[np.float32]

ACCENT = "#0a6ebd"
CHOSEN = "#e0007a"

_OUTSIDE = "#e6e6e6"
_MAX_NUMBERED = 40
_MAX_BIN_LINES = 32


class View:
    """The input as an image: an RGB picture, or one channel of a map in false colours.

    Of a volume it is one plane, in the colours of the whole.
    """

    def __init__(self, features: FeatureMap, image: int, channel: int, plane: int = 0) -> None:
        self.size = features.size[0], features.size[1]
        self.coloured = features.picture is not None
        self.channels = features.values.shape[1]
        if features.picture is not None:
            self.what = "The picture"
            self.pixels = features.picture
            return
        self.channel = channel
        self.what = f"The {features.kind}"
        if self.channels > 1:
            self.what = f"Channel {channel} of 0 to {self.channels - 1}"
        if len(features.values) > 1:
            self.what += f" of image {image}"
        values = features.values[image, channel]
        if features.is_volume:
            self.what += f", plane {plane} of 0 to {len(values) - 1}"
        self.pixels = values[plane] if features.is_volume else values
        finite = values[np.isfinite(values)]
        self.low = float(finite.min()) if finite.size else 0.0
        self.high = float(finite.max()) if finite.size else 1.0
        if self.low == self.high:  # a constant map; pooled values may still vary
            self.low, self.high = min(self.low, 0.0), max(self.high, 0.0)

    def show(self, axes: Axes) -> None:
        """Show the whole input in image pixels; pixel i extends from i to i + 1."""
        width, height = self.size
        axes.set_facecolor(_OUTSIDE)
        self._show(axes, self.pixels, extent=(0, width, height, 0), aspect="auto")

    def show_pooled(self, axes: Axes, pooled: FloatArray) -> None:
        """Show the (C, PH, PW) output of one box."""
        axes.set_facecolor(_OUTSIDE)
        self._show(axes, pooled.transpose(1, 2, 0) if self.coloured else pooled[self.channel])
        axes.set_anchor("N")

    def _show(self, axes: Axes, pixels: FloatArray, **style: Any) -> None:
        if self.coloured:
            # Pooled values above 1, which some systems return, get the brightest colour.
            pixels = np.clip(np.nan_to_num(pixels), 0, 1)
            axes.imshow(pixels, interpolation="nearest", **style)
        else:
            style.update(cmap="viridis", vmin=self.low, vmax=self.high)
            axes.imshow(np.ma.masked_invalid(pixels), interpolation="nearest", **style)


def difference_scale(comparison: PartComparison) -> ScalarMappable | None:
    """Return the colour scale of all differences in the figure; None if there are none."""
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import PowerNorm

    if all(apart.differing == 0 for apart in comparison.pairs.values()):
        return None
    # One system that is far from all others must not make the rest colourless.
    greatest = _greatest_of_groups(comparison)
    top = min(max(greatest), 2 * float(np.median(greatest)))
    # The square root keeps a half-pixel shift visible beside the large differences of maxima.
    return ScalarMappable(PowerNorm(0.5, 0.0, top), colormaps["YlOrRd"])


def _greatest_of_groups(comparison: PartComparison) -> list[float]:
    """Return the largest finite difference of each group to the reference, without zeros."""
    reference = comparison.groups[comparison.reference_group].output
    largest = []
    for group in comparison.groups:
        apart = distance(group.output, reference)
        largest.append(float(apart[np.isfinite(apart)].max(initial=0.0)))
    return [value for value in largest if value > 0] or [1.0]


def difference_colours(
    apart: NDArray[np.float64], scale: ScalarMappable | None
) -> NDArray[np.float64]:
    """Convert differences to RGBA: white for 0, black for infinity."""
    colours = np.ones((*apart.shape, 4))
    if scale is not None:
        far = apart > 0
        colours[far] = np.asarray(scale.to_rgba(np.minimum(apart[far], scale.get_clim()[1])))
        colours[np.isinf(apart)] = (0.0, 0.0, 0.0, 1.0)
    return colours


def draw_boxes(
    axes: Axes,
    rois: FloatArray,
    here: Sequence[int],
    shown: Sequence[int],
    size: tuple[float, float],
) -> None:
    """Outline and number the boxes of this image, with room for those beyond its edge."""
    from matplotlib.patches import Polygon

    few = len(here) <= _MAX_NUMBERED
    for index in sorted(here, key=lambda k: k in shown):
        corners = corners_of(rois[index, 1:])
        colour, width = (CHOSEN, 2.0) if index in shown else (ACCENT, 1.4 if few else 0.5)
        if few or index in shown:
            axes.add_patch(Polygon(corners, fill=False, ec="white", lw=width + 1))
        axes.add_patch(Polygon(corners, fill=False, ec=colour, lw=width))
    room = 0.06
    axes.set_xlim(-room * size[0], (1 + room) * size[0])
    axes.set_ylim((1 + room) * size[1], -room * size[1])
    labelled = list(here) if few else list(shown)
    for index, (x, y) in zip(labelled, _label_places(rois, labelled, size), strict=True):
        axes.text(
            x,
            y,
            str(index + 1),
            size=9,
            weight="bold",
            color="white",
            ha="center",
            va="center",
            bbox={
                "boxstyle": "round,pad=0.2",
                "fc": CHOSEN if index in shown else ACCENT,
                "ec": "white",
            },
        )


def _label_places(
    rois: FloatArray, labelled: Sequence[int], size: tuple[float, float]
) -> list[tuple[float, float]]:
    """Place each number on its box's outline, inside the view and away from other numbers."""
    low = np.array([-0.03 * size[0], -0.03 * size[1]])
    high = np.array([1.03 * size[0], 1.03 * size[1]])
    apart = 0.075 * max(size)
    places: list[tuple[float, float]] = []
    for index in labelled:
        corners = corners_of(rois[index, 1:])
        first, second, third, fourth = corners
        middles = [(first + second) / 2, (first + fourth) / 2, (fourth + third) / 2]
        middles += [(second + third) / 2, (first + third) / 2]
        ends = [first, second, fourth, third]
        candidates = [np.clip(point, low, high) for point in (*ends, *middles)]
        free = [
            min((float(np.hypot(*(point - place))) for place in places), default=np.inf)
            for point in candidates
        ]
        # The first place with enough room or, if there is none, the one with the most room.
        best = next((i for i, room in enumerate(free) if room >= apart), int(np.argmax(free)))
        places.append((float(candidates[best][0]), float(candidates[best][1])))
    return places


def enlarge(axes: Axes, box: FloatArray, bins: tuple[int, ...], aspect: float) -> None:
    """Zoom to a box with some room around it, and draw its bins."""
    from matplotlib.patches import Polygon

    corners = corners_of(box)
    first, second, third, fourth = corners
    lines: dict[str, Any] = {"color": "white", "lw": 0.7, "alpha": 0.8}
    if max(bins) <= _MAX_BIN_LINES:
        for start, end, count in (
            ((first, second), (fourth, third), bins[1]),
            ((first, fourth), (second, third), bins[0]),
        ):
            for share in np.linspace(0, 1, count + 1):
                ends = [low + share * (high - low) for low, high in (start, end)]
                axes.plot(*np.transpose(ends), **lines)
    axes.add_patch(Polygon(corners, fill=False, ec=CHOSEN, lw=1.8))
    (x1, y1), (x2, y2) = corners.min(axis=0).tolist(), corners.max(axis=0).tolist()
    half_height = max(y2 - y1, (x2 - x1) / aspect, 1.0) / 2 * 1.2
    x, y = (x1 + x2) / 2, (y1 + y2) / 2
    axes.set_xlim(x - half_height * aspect, x + half_height * aspect)
    axes.set_ylim(y + half_height, y - half_height)
