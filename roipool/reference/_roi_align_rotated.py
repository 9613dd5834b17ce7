"""ROI align of rotated boxes: the average of bilinear samples on a turned grid."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from roipool.reference._box_pooling import BoxPooling
from roipool.reference._inputs import (
    Array,
    Box,
    Floats,
    Pair,
    Real,
    Scalar,
    Size,
    as_pair,
    as_real,
)
from roipool.reference._loops import EMPTY, Averages, Bin, Definition, Motion, Sample, Slopes
from roipool.reference._rules import (
    ROI_ALIGN,
    TURNS,
    Pixel,
    Rules,
    held_slopes,
    neighbours,
    product,
)
from roipool.reference._sides import samples_per_bin

FARTHEST_CENTRE = 2.0**30  # in cells; the largest angle in radians, too


class _Side(NamedTuple):
    """One side of a box, around 0: its length, the samples of its bins, whether it is held at 1."""

    length: Scalar
    bins: int
    grid: int
    is_held: bool

    def position(self, bin_number: int, sample: int, real: Real) -> Scalar:
        """Return where a sample lies along the side."""
        bin_size = self.length / real(self.bins)
        start = -self.length / real(2)
        step = (real(sample) + real(0.5)) * bin_size / real(self.grid)
        return start + real(bin_number) * bin_size + step

    def share(self, bin_number: int, sample: int) -> float:
        """Return how far a sample moves as the side grows by one."""
        if self.is_held:
            return 0.0
        return (bin_number + (sample + 0.5) / self.grid) / self.bins - 0.5


class TurnedBox:
    """One box by the rules, of which `angle` says what its last number means.

    Its centre and sides are in cells.
    """

    rules: Rules
    size: Pair
    real: Real
    scale: float
    turn: float
    x: Scalar
    y: Scalar
    across: _Side
    down: _Side
    exists: bool
    cosine: Scalar
    sine: Scalar

    def __init__(
        self,
        rules: Rules,
        box: Box,
        bins: Pair,
        size: Pair,
        scale: float,
        ratio: Pair,
        real: Real,
        rounds_angle: bool = False,
    ) -> None:
        self.rules, self.size, self.real, self.scale = rules, size, real, scale
        self.turn = TURNS[rules.angle]
        assert not isinstance(rules.shift, tuple)
        shift = real(rules.shift)
        self.x, self.y = (
            (real(at) - shift) * real(scale)
            if rules.shift_unit == "pixel"
            else real(at) * real(scale) - shift
            for at in box[:2]
        )
        self.across, self.down = (
            self._side(real(length) * real(scale), bins[axis], ratio[axis])
            for length, axis in ((box[2], 1), (box[3], 0))
        )
        angle = float(real(box[4])) * self.turn
        if rounds_angle:
            angle = float(real(angle))
        numbers = (*map(float, (self.x, self.y, self.across.length, self.down.length)), angle)
        self.exists = all(map(math.isfinite, numbers)) and all(
            abs(number) <= FARTHEST_CENTRE for number in (*numbers[:2], angle)
        )
        self.cosine, self.sine = (
            (real(math.cos(angle)), real(math.sin(angle))) if self.exists else (real(0), real(0))
        )

    def _side(self, length: Scalar, bins: int, ratio: int) -> _Side:
        assert not isinstance(self.rules.minimum, tuple)
        least = self.rules.minimum
        is_held = least is not None and bool(length < self.real(least))
        length = self.real(least) if least is not None and is_held else length
        grid = samples_per_bin(self.rules, length, bins, ratio, self.real, self.real)
        return _Side(length, bins, grid, is_held)

    def pixels(self, y: Scalar, x: Scalar) -> list[Pixel]:
        """Return the cells that a sample reads: none if it is outside the map."""
        rows, columns = (
            neighbours(self.rules, at, size, self.real)
            for at, size in zip((y, x), self.size, strict=True)
        )
        return [(i, j, product(down, across)) for i, down in rows for j, across in columns]

    def bin(self, ph: int, pw: int) -> Bin:
        """Return the samples of one bin, those that lie in the map."""
        if not self.exists:
            return EMPTY
        grid = self.down.grid, self.across.grid
        samples = []
        for iy in range(grid[0]):
            yy = self.down.position(ph, iy, self.real)
            for ix in range(grid[1]):
                xx = self.across.position(pw, ix, self.real)
                y = yy * self.cosine - xx * self.sine + self.y
                x = yy * self.sine + xx * self.cosine + self.x
                if pixels := self.pixels(y, x):
                    samples.append(Sample(iy * grid[1] + ix, float(y), float(x), pixels))
        return Bin(samples, grid)

    def motion(self, ph: int, pw: int, sample: Sample) -> Iterator[tuple[float, float]]:
        """Return how y and x of a sample move with centre x and y, width, height and angle."""
        iy, ix = divmod(sample.number, self.across.grid)
        scale, cosine, sine = (float(value) for value in (self.scale, self.cosine, self.sine))
        across, down = self.across.share(pw, ix) * scale, self.down.share(ph, iy) * scale
        yield 0.0, scale
        yield scale, 0.0
        yield -across * sine, across * cosine
        yield down * cosine, down * sine
        # Turning counter-clockwise as the image is shown, where y points down. From the sample's
        # place in the box: far from the map's corner its own coordinates are rounded more.
        yy = float(self.down.position(ph, iy, self.real))
        xx = float(self.across.position(pw, ix, self.real))
        yield -self.turn * (yy * sine + xx * cosine), self.turn * (yy * cosine - xx * sine)


_ANGLES = {
    "radians": ("counter-clockwise", "clockwise"),
    "degrees": ("degrees", "clockwise degrees"),
}


@dataclass(frozen=True)
class RoiAlignRotated(BoxPooling):
    """As :func:`roipool.roi_align_rotated`, slowly: every sample by itself.

    A box whose centre or angle is beyond 2**30 cells or radians is 0. With `rounds_angle`, degrees
    become radians of `coordinate_dtype`, as in detectron2 and MXNet.
    """

    spatial_scale: float = 1.0
    sampling_ratio: Size = 0
    _: KW_ONLY
    aligned: bool = True
    clockwise: bool = False
    angle_unit: str = "radians"
    rounds_angle: bool = False

    @property
    def rules(self) -> Rules:
        """ROI align's rules with one of the caller's angles."""
        if self.angle_unit not in _ANGLES:
            raise ValueError(f"angle_unit must be 'radians' or 'degrees', got {self.angle_unit!r}")
        angle = _ANGLES[self.angle_unit][bool(self.clockwise)]
        return replace(ROI_ALIGN.of_boxes(self.aligned), angle=angle)

    def turned(self, bins: Pair, size: Pair) -> Callable[[Box], TurnedBox]:
        """Return a function from numbers to a box, kept for all of its bins and samples."""
        rules, real = self.rules, as_real(self.coordinate_dtype)
        options = self.spatial_scale, as_pair(self.sampling_ratio), real, self.rounds_angle
        return lru_cache(1)(lambda box: TurnedBox(rules, box, bins, size, *options))

    def define(self, bins: Pair, size: Pair) -> Definition:
        """Return the bins of rotated boxes on a map."""
        turned = self.turned(bins, size)
        return lambda box, ph, pw: turned(box).bin(ph, pw)

    def motion(self, bins: Pair, size: Pair) -> Motion:
        """Return how samples move with the numbers of their box."""
        turned = self.turned(bins, size)
        return lambda box, ph, pw, found, sample: turned(box).motion(ph, pw, sample)

    @property
    def averages(self) -> Averages:
        """The averages of the samples of every bin."""
        return Averages(self.define, *self.place, 5)

    def forward(self, features: Array, output_size: Size) -> Floats:
        """Return averages."""
        return self.averages.forward(features, output_size)

    def backward(self, grad_output: Array, input_shape: Sequence[int]) -> Floats:
        """Return the gradient of maps: the transpose, sample by sample."""
        return self.averages.backward(grad_output, input_shape)

    def backward_boxes(self, grad_output: Array, features: Array) -> Floats:
        """Return the gradient of boxes: the slope at every sample, times the sample's motion."""
        real = as_real(self.coordinate_dtype)

        def slopes_in(size: Pair) -> Slopes:
            return lambda sample: held_slopes(real(sample.y), real(sample.x), size, real)

        return self.averages.backward_boxes(grad_output, features, slopes_in, self.motion)
