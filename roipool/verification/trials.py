"""Random trials: inputs for every operation, and what a library answers to them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from roipool import reference
from roipool._definitions import OPS, Op, Variant
from roipool.verification.tolerance import Array

Answers = dict[str, Any]

# Every variant of every operation by name; an operation's first is called as the operation.
VARIANTS: dict[str, tuple[Op, Variant]] = {
    f"{op.forward} {key}" if number else op.forward: (op, variant)
    for op in OPS.values()
    for number, (key, variant) in enumerate(op.variants.items())
}
# Argmax that number samples: rounding may exchange samples that are nearly equal.
SAMPLE_ARGMAX = {
    f"{name} argmax" for name, (_, variant) in VARIANTS.items() if variant.bin_value == "sample"
}
# Results that are copies of numbers, or sums of a few multiples of 1/16: exact.
EXACT = {
    f"{name}{result}"
    for name, (_, variant) in VARIANTS.items()
    if variant.bin_value == "cell"
    for result in ("", " gradient")
}
MAX_ROTATED_SIDE = 8  # cells: the oracle visits every sample of a rotated box


def ulps_of(result: str) -> float:
    """Return how many roundings are allowed, each relative to the sum of absolute terms.

    Gradients of upright boxes have a generous sum of terms; those of rotated ones can reach it.
    """
    if result in EXACT or result.endswith(" argmax"):
        return 0
    name = result.removesuffix(" box gradient")
    return 1 if name != result and VARIANTS[name][0].columns == 4 else 4


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
        even the argmax among samples is bound to agree.
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
    def options(self) -> dict[str, Any]:
        """Options of operations, by the names of their arguments; each takes those that it has."""
        return {
            "spatial_scale": self.scale,
            "sampling_ratio": self.sampling,
            "aligned": self.aligned,
            "clockwise": not self.aligned,
        }

    @property
    def fractions(self) -> Array:
        """The boxes as crop_and_resize takes them: y1, x1, y2, x2 as fractions of the map."""
        height, width = self.maps.shape[2:]
        x1, y1, x2, y2 = self.rois[:, 1:].T * self.scale
        return np.stack([y1, x1, y2, x2], axis=1) / np.array([height - 1, width - 1] * 2)

    @property
    def rotated(self) -> Array:
        """The boxes as roi_align_rotated takes them, (K, 6), with sides of bounded length."""
        low, high = self.rois[:, 1:3], self.rois[:, 3:]
        longest = MAX_ROTATED_SIDE / self.scale
        sides = np.clip(high - low, -longest, longest)
        angles = 0.7 * np.arange(len(self.rois))
        return np.column_stack([self.images, (low + high) / 2, sides, angles])

    def boxes(self, op: Op) -> dict[str, Array]:
        """Return the arguments of an operation that hold the boxes and their images."""
        if not op.form.is_normalised:
            return {"rois": self.rotated if op.is_rotated else self.rois}
        return {op.boxes: self.fractions, op.indices: self.images}

    def cells_per_unit(self, op: Op) -> Array:
        """Return how many cells a sample moves at most, as each number of a box grows by one."""
        if not op.form.is_normalised:
            return np.array([self.scale] * 4 + [MAX_ROTATED_SIDE] * (op.columns - 4))
        height, width = self.maps.shape[2:]
        return np.array([height - 1, width - 1] * 2)

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


def as_it_is(array: Any) -> Any:
    """Return the array."""
    return array


def answers(
    library: Any,
    trial: Trial,
    maps: Any,
    grad: Any,
    *,
    put: Callable[[Array], Any] = as_it_is,
    argmax: Mapping[str, Any] | None = None,
    outside: float = 0.5,
    box_gradients: bool = True,
    **options: Any,
) -> Answers:
    """Return what every operation of roipool or of its oracle makes of a trial, by name.

    Parameters
    ----------
    library : module
        `roipool`, `roipool.reference`, or an object with functions of the same names.
    trial : Trial
        Gives boxes and options.
    maps, grad : array
        The trial's arrays, in the type and layout and on the device to compute with.
    put : callable
        Brings boxes to that device.
    argmax : mapping of str to array, optional
        By variant, the argmax whose gradients are taken; by default those that `library` finds.
    outside : float
        Value of bins outside the map, for operations that have it as an argument.
    box_gradients : bool
        Whether to compute the gradients of boxes.
    **options
        `layout` of maps and grad, and `coordinate_dtype` of the oracle.

    Returns
    -------
    dict
        Arrays by "roi_align", "roi_align gradient", "roi_align box gradient", "roi_align max",
        "roi_align max argmax" and so on.
    """
    found: Answers = {}
    for name, (op, variant) in VARIANTS.items():
        boxes = {key: put(array) for key, array in trial.boxes(op).items()}
        known = {
            "features": maps, "grad_output": grad, "input_shape": tuple(maps.shape),
            op.size: trial.size, "return_argmax": variant.has_argmax,
            **trial.options, **boxes, **variant.options, **options,
        }  # fmt: skip
        if op.filling is not None:
            known[op.filling] = outside
        pooled = _call(library, op.forward, known)
        if variant.has_argmax:
            pooled, found[f"{name} argmax"] = pooled
            known["argmax"] = (argmax or {}).get(name, found[f"{name} argmax"])
        found[name] = pooled
        found[f"{name} gradient"] = _call(library, op.backward, known)
        if variant.by_boxes and op.backward_boxes and box_gradients:
            found[f"{name} box gradient"] = _call(library, op.backward_boxes, known)
    return found


def _call(library: Any, name: str, known: Mapping[str, Any]) -> Any:
    """Call a function with those arguments that it has."""
    function = getattr(library, name)
    parameters = inspect.signature(function).parameters
    return function(**{key: value for key, value in known.items() if key in parameters})


def argmax_of(found: Answers) -> dict[str, Any]:
    """Return the argmax among answers, by variant."""
    ending = " argmax"
    return {
        name.removesuffix(ending): array for name, array in found.items() if name.endswith(ending)
    }


def exact_answers(trial: Trial, real: type[np.floating[Any]]) -> tuple[Answers, Answers]:
    """Return the oracle's answers, and the sums of absolute terms by which errors are measured."""
    sizes = trial.absolute()
    exact = answers(reference, trial, trial.maps, trial.grad, coordinate_dtype=real)
    terms = answers(
        reference, trial, sizes.maps, sizes.grad, argmax=argmax_of(exact), outside=0.0,
        box_gradients=False, coordinate_dtype=real,
    )  # fmt: skip
    slopes = 2 * sizes.grad.sum(axis=(1, 2, 3))[:, None] * sizes.maps.max()
    for name, (op, variant) in VARIANTS.items():
        by_boxes = slopes * trial.cells_per_unit(op) if variant.by_boxes else None
        if op.is_rotated and real is np.float64:
            # The last bit of a float64 sine or cosine is not the same everywhere (in float32 it is:
            # both are rounded from float64). A sample moves by as many roundings as it is cells
            # away from the centre; numbers of the trial differ by 16 at most.
            for result in (name, f"{name} gradient"):
                terms[result] = terms[result] + 16 * MAX_ROTATED_SIDE
            by_boxes = None if by_boxes is None else by_boxes * (1 + MAX_ROTATED_SIDE)
        if by_boxes is not None:
            terms[f"{name} box gradient"] = by_boxes
    return exact, terms
