"""Simple implementations of ROI pooling and ROI align, optionally with one mistake."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Array = Any


def roi_pool(mistake: str = "") -> Callable[..., tuple[Array, Array]]:
    """Return an implementation of torchvision's roi_pool that also returns the argmax."""

    def rounded(value: Any) -> int:
        if mistake == "half to even":
            return round(float(value))
        if mistake == "halves up":
            return math.floor(float(value) + 0.5)
        if mistake == "cut, not rounded":
            return int(value)
        return math.floor(abs(float(value)) + 0.5) * (1 if value >= 0 else -1)

    def limits(first: int, last: int, bins: int, p: int, size: int) -> tuple[int, int]:
        length = last - first + (0 if mistake == "missing +1" else 1)
        step = np.float32(max(length, 1)) / np.float32(bins)
        if mistake == "reciprocal one rounding short":
            reciprocal = np.float32(1) / np.float32(bins)
            step = np.float32(max(length, 1)) * np.nextafter(reciprocal, np.float32(0))
        low = math.floor(np.float32(p) * step) + first
        high = math.ceil(np.float32(p + 1) * step) + first
        size -= mistake == "clamp at H - 1"
        return min(max(low, 0), size), min(max(high, 0), size)

    def pool(
        input: Array, boxes: Array, output_size: Any, spatial_scale: float = 1.0
    ) -> tuple[Array, Array]:
        rows, columns = output_size
        _, channels, height, width = input.shape
        pooled = np.zeros((len(boxes), channels, rows, columns), input.dtype)
        argmax = np.full(pooled.shape, -1, np.int32)
        for k, box in enumerate(boxes):
            image = input[0 if mistake == "batch index ignored" else int(box[0])]
            x1, y1, x2, y2 = (rounded(v * np.float32(spatial_scale)) for v in box[1:])
            if mistake == "last end floored":
                x2, y2 = (math.floor(v * np.float32(spatial_scale)) for v in box[3:])
            for ph, pw in np.ndindex(rows, columns):
                top, bottom = limits(y1, y2, rows, ph, height)
                left, right = limits(x1, x2, columns, pw, width)
                if top >= bottom or left >= right:
                    continue
                cells = image[:, top:bottom, left:right].reshape(channels, -1)
                first = cells.argmax(axis=1)
                if mistake == "last of equals":
                    first = cells.shape[1] - 1 - cells[:, ::-1].argmax(axis=1)
                y, x = top + first // (right - left), left + first % (right - left)
                pooled[k, :, ph, pw] = cells[np.arange(channels), first]
                argmax[k, :, ph, pw] = (
                    x * height + y if mistake == "transposed argmax" else y * width + x
                )
        return pooled, argmax

    return pool


def neighbours(at: Any, size: int, mistake: str) -> list[tuple[int, Any]]:
    """Return the cells around a position with their weights; cells outside the map are 0."""
    if mistake not in ("floor of a negative", "negative position cut"):
        at = max(at, np.float32(0))
    low = int(at) if mistake == "negative position cut" else math.floor(at)
    if low >= size - 1 and mistake != "clamp at H":
        return [(size - 1, np.float32(1))]
    after = at - np.float32(low)
    before = np.float32(1) - after
    if mistake == "swapped weights":
        before, after = after, before
    return [(i, w) for i, w in ((low, before), (low + 1, after)) if 0 <= i < size]


def samples(
    first: Any, last: Any, p: int, bins: int, size: int, ratio: int, aligned: bool, mistake: str
) -> tuple[int, list[list[tuple[int, Any]]]]:
    """Return the number of samples of bin `p` along an axis, and the neighbours of those inside."""
    offset = np.float32(0.5 if aligned else 0)
    if mistake in ("half pixel left out", "half pixel before scaling"):
        offset = np.float32(0)
    elif aligned and mistake == "shift of 0.25":
        offset = np.float32(0.25)
    start, length = first - offset, (last - offset) - (first - offset)
    if not aligned:
        length = max(length, np.float32(1))
    step = length / np.float32(bins)
    nearest = math.floor if mistake == "adaptive count by floor" else math.ceil
    count = ratio if ratio > 0 else max(nearest(step), 0)
    if mistake in ("one sample", "two samples"):
        count = 1 if mistake == "one sample" else 2
    lowest = 0 if mistake == "border at 0" else -1
    inside = []
    for i in range(count):
        at = start + np.float32(p) * step + np.float32(i + 0.5) * step / np.float32(count)
        if lowest <= at <= size:
            inside.append(neighbours(at, size, mistake))
    return count, inside


def weights(
    boxes: Array, shape: Any, size: Any, scale: float, ratio: int, aligned: bool, mistake: str
) -> Any:
    """Yield box, image and bin, the bin's number of samples, and its cells with weights."""
    for k, box in enumerate(boxes):
        image = 0 if mistake == "batch index ignored" else int(box[0])
        before = 0.5 if aligned and mistake == "half pixel before scaling" else 0.0
        x1, y1, x2, y2 = ((v - np.float32(before)) * np.float32(scale) for v in box[1:])
        if mistake == "last end floored":
            x2, y2 = np.floor(x2), np.floor(y2)
        for ph, pw in np.ndindex(*size):
            down, rows = samples(y1, y2, ph, size[0], shape[2], ratio, aligned, mistake)
            across, columns = samples(x1, x2, pw, size[1], shape[3], ratio, aligned, mistake)
            count = down * across
            if mistake != "count without max 1":
                count = max(count, 1)
            if mistake == "not divided":
                count = 1
            cells = [
                (y, x, wy * wx)
                for row in rows
                for column in columns
                for y, wy in row
                for x, wx in column
            ]
            yield k, image, ph, pw, np.float32(count), cells


def roi_align(mistake: str = "") -> Callable[..., Array]:
    """Return an implementation of torchvision's roi_align."""

    def align(
        input: Array,
        boxes: Array,
        output_size: Any,
        spatial_scale: float = 1.0,
        sampling_ratio: int = -1,
        aligned: bool = False,
    ) -> Array:
        pooled = np.zeros((len(boxes), input.shape[1], *output_size), input.dtype)
        options = output_size, spatial_scale, sampling_ratio, aligned, mistake
        for k, image, ph, pw, count, cells in weights(boxes, input.shape, *options):
            total = np.zeros(input.shape[1], input.dtype)
            for y, x, weight in cells:
                total += weight * input[image, :, y, x]
            with np.errstate(invalid="ignore"):
                pooled[k, :, ph, pw] = total / count
        return pooled

    return align


def roi_align_backward(mistake: str = "") -> Callable[..., Array]:
    """Return an implementation of the gradient of torchvision's roi_align."""

    def backward(
        grad_output: Array,
        boxes: Array,
        input_shape: Any,
        spatial_scale: float = 1.0,
        sampling_ratio: int = -1,
        aligned: bool = False,
    ) -> Array:
        gradient = np.zeros(input_shape, grad_output.dtype)
        options = grad_output.shape[2:], spatial_scale, sampling_ratio, aligned, mistake
        for k, image, ph, pw, count, cells in weights(boxes, input_shape, *options):
            for y, x, weight in cells:
                sign = -1 if mistake == "sign of the gradient" else 1
                gradient[image, :, y, x] += sign * weight * grad_output[k, :, ph, pw] / count
        return gradient

    return backward
