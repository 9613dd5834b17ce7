"""Random trials: inputs for every operation, and what a library answers to them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import numpy as np

from roipool import reference
from roipool.verification.tolerance import Array

Answers = dict[str, Any]

# Roundings allowed where it is not 4, each relative to the sum of absolute terms. Sums of a few
# multiples of 1/16, and copies of them, are exact; box gradients have a generous sum of terms.
ULPS = {
    "roi_pool": 0,
    "roi_pool winners": 0,
    "roi_pool gradient": 0,
    "roi_align winners": 0,
    "roi_align box gradient": 1,
    "crop_and_resize nearest": 0,
    "crop_and_resize nearest gradient": 0,
    "crop_and_resize box gradient": 1,
}


@dataclass(frozen=True, eq=False)
class Trial:
    """Inputs for every operation, in float64; every supported type holds maps and grad exactly.

    Attributes
    ----------
    maps : ndarray
        Shape (N, C, H, W), multiples of 1/16.
    rois : ndarray
        Shape (K, 5).
    grad : ndarray
        A gradient of the pooled values, (K, C, rows, columns), multiples of 1/16.
    scale, sampling, aligned
        Options of ROI align; the scale is for all that have one.
    exact : bool
        Whether samples are exact in every type, so that equal ones are equal for everybody and
        even winners among samples are bound to agree.
    """

    name: str
    maps: Array
    rois: Array
    grad: Array
    scale: float = 1.0
    sampling: int = 0
    aligned: bool = True
    exact: bool = False

    @property
    def size(self) -> tuple[int, int]:
        """Bins: rows and columns."""
        rows, columns = self.grad.shape[2:]
        return rows, columns

    @property
    def boxes(self) -> Array:
        """The boxes as crop_and_resize takes them: y1, x1, y2, x2 as fractions of the map."""
        height, width = self.maps.shape[2:]
        x1, y1, x2, y2 = self.rois[:, 1:].T * self.scale
        return np.stack([y1, x1, y2, x2], axis=1) / np.array([height - 1, width - 1] * 2)

    def absolute(self) -> Trial:
        """Return the trial with the absolute values of maps and gradient, 0 for NaN."""
        maps = np.nan_to_num(np.abs(self.maps))
        return replace(self, maps=maps, grad=np.abs(self.grad))

    @property
    def images(self) -> Array:
        """The image of each box."""
        return self.rois[:, 0].astype(np.int64)


def sixteenths(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Return multiples of 1/16 of at most 8 significant bits, which float16 and bfloat16 hold."""
    return rng.integers(-128, 128, shape) / 16


def trials(rng: np.random.Generator) -> Iterator[Trial]:
    """Yield small trials, for which the oracle is fast enough."""
    # Channels: fewer and more than a vector holds, and multiples of it.
    for channels, size, scale, sampling, aligned in [
        (21, (3, 2), 0.5, 0, True),
        (1, (1, 5), 0.3, 2, False),
        (64, (2, 2), 1.0, 0, False),
        (3, (7, 7), 1 / 16, 2, True),
    ]:
        maps = sixteenths(rng, (2, channels, 9, 11))
        rois = _with_images(rng, _awkward_boxes(rng, 11, 9) / scale)
        grad = sixteenths(rng, (len(rois), channels, *size))
        name = f"{channels} channels, {size[0]} x {size[1]} bins"
        yield Trial(name, maps, rois, grad, scale, sampling, aligned)
    maps, grad = sixteenths(rng, (2, 5, 9, 11)), sixteenths(rng, (24, 5, 3, 2))
    maps[rng.random(maps.shape) < 0.1] = np.nan
    rois = _with_images(rng, _awkward_boxes(rng, 11, 9))
    yield Trial("NaN cells", maps, rois, grad, sampling=2)
    maps, grad = np.round(sixteenths(rng, (2, 21, 9, 11)) / 4), sixteenths(rng, (24, 21, 2, 4))
    rois = _with_images(rng, rng.integers(-12, 48, (24, 4)) / 4)
    yield Trial("boxes in quarters", maps, rois, grad, sampling=2, exact=True)


def large_trial(rng: np.random.Generator, threads: int = 1) -> Trial:
    """Return a trial with work for that many threads, 3 at least: 16384 pooled values each."""
    count, shape = 37 * max(threads, 3), (2, 37, 40, 50)
    rois = _with_images(rng, rng.uniform(-5, 55, (count, 4)))
    return Trial("large", sixteenths(rng, shape), rois, sixteenths(rng, (count, shape[1], 3, 4)))


def _with_images(rng: np.random.Generator, boxes: Array) -> Array:
    return np.column_stack([rng.integers(0, 2, len(boxes)), boxes])


def _awkward_boxes(rng: np.random.Generator, width: int, height: int) -> Array:
    """Return boxes inside, over the edge, outside, reversed, flat, huge, on halves, not finite."""
    low = rng.uniform(-3, [width + 1, height + 1], (24, 2))
    boxes = np.concatenate([low, low + rng.uniform(-2, 9, (24, 2))], axis=1)
    boxes[::3] = np.round(boxes[::3])
    boxes[1::3] = np.round(2 * boxes[1::3]) / 2
    boxes[:2, 2] = boxes[:2, 0]
    boxes[2] = -1000, -900, 1100, 1200
    boxes[3, 1], boxes[4, 2], boxes[5, 0] = np.nan, np.inf, -np.inf
    return boxes


def answers(
    lib: ModuleType,
    trial: Trial,
    maps: Any,
    grad: Any,
    rois: Any,
    boxes: Any,
    images: Any,
    *,
    cells: Any = None,
    samples: Any = None,
    outside: float = 0.5,
    layout: str = "NCHW",
    **options: Any,
) -> Answers:
    """Return what every operation of roipool or of its oracle makes of a trial, by name.

    Parameters
    ----------
    lib : module
        `roipool` or `roipool.reference`.
    trial : Trial
        Gives the options.
    maps, grad, rois, boxes, images : array
        The trial's arrays, in the type and layout and on the device to compute with.
    cells, samples : array, optional
        The winners whose gradients are taken; by default those that `lib` finds.
    outside : float
        Value of crops outside the map.
    layout : str
        Of maps and grad.
    **options
        `coordinate_dtype` of the oracle.
    """
    every: dict[str, Any] = {"layout": layout, **options}
    place = {"spatial_scale": trial.scale, **every}
    align = {"sampling_ratio": trial.sampling, "aligned": trial.aligned, **place}
    shape = tuple(maps.shape)
    pooled, own_cells = lib.roi_pool(maps, rois, trial.size, return_argmax=True, **place)
    greatest, own_samples = lib.roi_align(
        maps, rois, trial.size, mode="max", return_argmax=True, **align
    )
    cells = own_cells if cells is None else cells
    samples = own_samples if samples is None else samples
    found = {
        "roi_pool": pooled,
        "roi_pool winners": own_cells,
        "roi_pool gradient": lib.roi_pool_backward(grad, cells, rois, shape, layout=layout),
        "roi_average_pool": lib.roi_average_pool(maps, rois, trial.size, **place),
        "roi_average_pool gradient": lib.roi_average_pool_backward(grad, rois, shape, **place),
        "roi_align": lib.roi_align(maps, rois, trial.size, **align),
        "roi_align gradient": lib.roi_align_backward(grad, rois, shape, **align),
        "roi_align box gradient": lib.roi_align_backward_rois(grad, maps, rois, **align),
        "roi_align max": greatest,
        "roi_align winners": own_samples,
        "roi_align max gradient": lib.roi_align_backward(
            grad, rois, shape, mode="max", argmax=samples, **align
        ),
        "crop_and_resize box gradient": lib.crop_and_resize_backward_boxes(
            grad, maps, boxes, images, **every
        ),
    }
    for method in ("bilinear", "nearest"):
        found[f"crop_and_resize {method}"] = lib.crop_and_resize(
            maps, boxes, images, trial.size, method=method, extrapolation_value=outside, **every
        )
        found[f"crop_and_resize {method} gradient"] = lib.crop_and_resize_backward(
            grad, boxes, images, shape, method=method, **every
        )
    return found


def exact_answers(trial: Trial, real: type[np.floating[Any]]) -> tuple[Answers, Answers]:
    """Return the oracle's answers, and the sums of absolute terms by which errors are measured."""
    sizes = trial.absolute()
    where = (trial.rois, trial.boxes, trial.images)
    exact = answers(reference, trial, trial.maps, trial.grad, *where, coordinate_dtype=real)
    terms = answers(
        reference, trial, sizes.maps, sizes.grad, *where,
        cells=exact["roi_pool winners"], samples=exact["roi_align winners"],
        outside=0.0, coordinate_dtype=real,
    )  # fmt: skip
    slopes = 2 * sizes.grad.sum(axis=(1, 2, 3))[:, None] * sizes.maps.max()
    height, width = trial.maps.shape[2:]
    terms["roi_align box gradient"] = trial.scale * slopes
    terms["crop_and_resize box gradient"] = np.array([height - 1, width - 1] * 2) * slopes
    return exact, terms
