"""Masks pasted into the boxes of a picture: each pixel by itself, from the published formulas."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from roipool.reference._inputs import Array, DType, Floats, Real, Size, as_pair, as_real


class Laid(NamedTuple):
    """A pixel on a mask, along one axis: it has `share` of cell + 1, and the rest of cell."""

    cell: int
    share: float
    moves: tuple[float, float]  # how its position moves with both ends of the box


def faded(low: float, high: float, cells: int, pixel: int, real: Real) -> Laid | None:
    """detectron2 on a GPU, mmdetection and SAM 3: grid_sample, with cells outside as 0."""
    with np.errstate(all="ignore"):
        start, end = real(low), real(high)
        side = end - start
        if not (np.isfinite(side) and end > start):
            return None
        part = (real(pixel) + real(0.5) - start) / side
        grid = part * real(2) - real(1)
        position = float(((grid + real(1)) * real(cells) - real(1)) / real(2))
    if not -1 <= position < cells:
        return None
    slope = cells / float(side)
    moves = slope * (float(part) - 1), -slope * float(part)
    return Laid(math.floor(position), position - math.floor(position), moves)


def cut(low: float, high: float, cells: int, pixel: int, real: Real) -> Laid | None:
    """Matterport: the same, but only pixels of the box, which is of whole pixels."""
    return faded(low, high, cells, pixel, real) if low <= pixel < high else None


def resized(low: float, high: float, cells: int, pixel: int, real: Real, frame: int) -> Laid | None:
    """torchvision: a mask in a frame of zeros, resized to a box of whole pixels."""
    if not low <= pixel < high:
        return None
    step = real(cells + 2 * frame) / real(high - low)
    position = max(float(step * (real(pixel - low) + real(0.5)) - real(0.5)), 0.0)
    cell, last = math.floor(position), cells + 2 * frame - 1
    share = position - cell if cell < last else 0.0
    return Laid(min(cell, last) - frame, share, (0.0, 0.0))


def _laid(
    rule: str, frame: int, low: float, high: float, cells: int, pixel: int, real: Real
) -> Laid | None:
    if rule == "resized":
        return resized(low, high, cells, pixel, real, frame)
    return (faded if rule == "faded" else cut)(low, high, cells, pixel, real)


def _pixels(
    box: Sequence[float], shape: Sequence[int], size: Sequence[int], rule: str, frame: int, r: Real
) -> Iterator[tuple[int, int, Laid, Laid]]:
    x1, y1, x2, y2 = box
    for y in range(size[0]):
        down = _laid(rule, frame, y1, y2, shape[0], y, r)
        for x in range(size[1]):
            along = _laid(rule, frame, x1, x2, shape[1], x, r)
            if down is not None and along is not None:
                yield y, x, down, along


def _weights(laid: Laid) -> tuple[tuple[int, float, float], tuple[int, float, float]]:
    """The two cells with their weights, and how these change with the position."""
    return (laid.cell, 1 - laid.share, -1.0), (laid.cell + 1, laid.share, 1.0)


def _is_cell(row: int, column: int, shape: Sequence[int]) -> bool:
    return 0 <= row < shape[0] and 0 <= column < shape[1]


def _floats(array: Array) -> Floats:
    return np.asarray(array).astype(np.float64)


def _boxes(boxes: Array) -> list[list[float]]:
    table: list[list[float]] = np.asarray(boxes).astype(np.float64).reshape(-1, 4).tolist()
    return table


def paste_masks(
    masks: Array,
    boxes: Array,
    image_size: Size,
    *,
    rule: str = "faded",
    frame: int = 0,
    coordinate_dtype: DType = np.float64,
) -> Floats:
    """Return each mask in a picture of its own; (K, rows, columns), or (K, C, rows, columns)."""
    values, size, real = _floats(masks), as_pair(image_size), as_real(coordinate_dtype)
    result = np.zeros((*values.shape[:-2], *size))
    for mask, box in enumerate(_boxes(boxes)):
        cells = values[mask]
        shape = cells.shape[-2:]
        for y, x, down, along in _pixels(box, shape, size, rule, frame, real):
            for row, by_row, _ in _weights(down):
                for column, by_column, _ in _weights(along):
                    if _is_cell(row, column, shape) and by_row * by_column != 0:
                        value = by_row * by_column * cells[..., row, column]
                        result[mask, ..., y, x] += value
    return result


def paste_masks_backward(
    grad_output: Array,
    boxes: Array,
    masks_shape: Sequence[int],
    *,
    rule: str = "faded",
    frame: int = 0,
    coordinate_dtype: DType = np.float64,
) -> Floats:
    """Return the gradient with respect to the masks."""
    gradients, real = _floats(grad_output), as_real(coordinate_dtype)
    shape, size = (masks_shape[-2], masks_shape[-1]), gradients.shape[-2:]
    result = np.zeros(tuple(masks_shape))
    for mask, box in enumerate(_boxes(boxes)):
        for y, x, down, along in _pixels(box, shape, size, rule, frame, real):
            for row, by_row, _ in _weights(down):
                for column, by_column, _ in _weights(along):
                    if _is_cell(row, column, shape):
                        each = by_row * by_column * gradients[mask, ..., y, x]
                        result[mask, ..., row, column] += each
    return result


def paste_masks_backward_boxes(
    grad_output: Array, masks: Array, boxes: Array, *, coordinate_dtype: DType = np.float64
) -> Floats:
    """Return the gradient with respect to the boxes; (K, 4)."""
    gradients, values, real = _floats(grad_output), _floats(masks), as_real(coordinate_dtype)
    result, shape, size = np.zeros((len(values), 4)), values.shape[-2:], gradients.shape[-2:]
    for mask, box in enumerate(_boxes(boxes)):
        cells = values[mask]
        for y, x, down, along in _pixels(box, shape, size, "faded", 0, real):
            for row, by_row, row_slope in _weights(down):
                for column, by_column, column_slope in _weights(along):
                    if not _is_cell(row, column, shape):
                        continue
                    each = (gradients[mask, ..., y, x] * cells[..., row, column]).sum()
                    for end in range(2):
                        result[mask, 2 * end] += each * by_row * column_slope * along.moves[end]
                        result[mask, 2 * end + 1] += each * row_slope * by_column * down.moves[end]
    return result


def run_lengths(mask: npt.NDArray[Any]) -> list[int]:
    """Return the runs of a binary picture, column by column; the first one is of zeros."""
    runs, current = [0], False
    for pixel in np.asarray(mask).T.ravel():
        if bool(pixel) != current:
            runs.append(0)
            current = bool(pixel)
        runs[-1] += 1
    return runs


def compressed(runs: Sequence[int]) -> bytes:
    """Return runs as COCO's format compresses them.

    From the fourth run on, its difference to the run before the last is written. A number is
    written in groups of five bits, the lowest first, in two's complement; each group is a character
    from 48 on, to which 32 is added if more follow.
    """
    text = bytearray()
    for number, run in enumerate(runs):
        value = run - runs[number - 2] if number > 2 else run
        bits = 5
        while not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
            bits += 5
        groups = [(value >> at) & 31 for at in range(0, bits, 5)]
        text += bytes(48 + each + 32 for each in groups[:-1]) + bytes([48 + groups[-1]])
    return bytes(text)
