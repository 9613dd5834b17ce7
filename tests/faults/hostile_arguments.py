"""Random wrong arguments for every public function and class of roipool and roipool.compat.

A call that random calls draw (roipool.tools.random_calls), or one of `OTHER_CALLS`, gets a
wrong argument or two: of another type, shape, stride or size, or an object that misbehaves; of a
class, the constructor's arguments and the method's. It may end in a result, TypeError, ValueError
or MemoryError, with a short message; all else is a failure. The oracle, roipool.reference, checks
little, and is not called.
"""

from __future__ import annotations

import inspect
import itertools
import math
import sys
import warnings
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from _support.hostile import CUT_SHORT, Outcome, TimeIsUpError, limit_memory, main, time_limit

import roipool
from roipool.verification.call import FunctionCall, function_of, run
from roipool.verification.generate import draw

Random = np.random.Generator
MEBIBYTES = 1024
SECONDS = 5.0
MAX_MESSAGE = 2000


class LyingShape(np.ndarray):
    """An array that claims to be larger."""

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return tuple(2 * size + 1 for size in np.asarray(self).shape)


class LyingType(np.ndarray):
    """An array that claims to have another type."""

    @property
    def dtype(self) -> np.dtype[Any]:  # type: ignore[override]
        return np.dtype(np.float64)


class HugeIndex:
    """A huge integer."""

    def __index__(self) -> int:
        return 10**5000


class Refusing:
    """An object whose methods all raise, including its representation."""

    def __index__(self) -> int:
        raise ValueError("refused")

    __float__ = __len__ = __repr__ = __iter__ = __bool__ = __index__  # type: ignore[assignment]


def itself() -> list[Any]:
    """Return a list that contains itself."""
    items: list[Any] = []
    items.append(items)
    return items


def deep() -> list[Any]:
    """Return a list nested beyond Python's recursion limit."""
    items: list[Any] = []
    for _ in range(5000):
        items = [items]
    return items


def structured() -> np.ndarray:
    """Return an array whose type has a representation of a megabyte."""
    return np.zeros((1, 1, 1, 1), [(f"field{number}", "f4") for number in range(20_000)])


INTEGERS = [0, 1, -1, 2, 7, 2**15, 2**15 + 1, 2**31 - 1, 2**31, 2**40, 2**63, 2**64]
REALS = [0.5, -0.0, math.nan, math.inf, -math.inf, 1e308, 1e-320]
SCALARS = [np.int8(3), np.uint64(2**64 - 1), np.float16(1), np.longdouble(2), Fraction(1, 3)]
NUMBERS: list[Any] = [*INTEGERS, 10**5000, -(10**5000), *REALS, 1j, True, False, *SCALARS]
CONSTANTS: list[Any] = [None, "", "7", "x" * 10**6, b"xx", "NCHW", int, len, ..., slice(3)]
PAIRS = [(1, 2), (3, 5), (2**31, 1), (1.5, 2)]
SHAPES = [(-1, 2, 3, 4), (2**40,) * 4, (0, 0, 0, 0), (2**28, 1, 0, 1)]
OTHERS: list[Callable[[], Any]] = [
    *(lambda value=value: value for value in (*CONSTANTS, *PAIRS, *SHAPES)),
    *(list, dict, set, object, itself, deep, structured, itertools.count, HugeIndex, Refusing),
    lambda: [[]],
    lambda: [[], []],
    lambda: [1, [2, 3]],
    lambda: [0] * 10**5,
    lambda: range(10**6),
    lambda: iter([1, 2]),
    lambda: memoryview(bytes(4)),
    lambda: memoryview(np.ones((2, 2))),
    lambda: [Refusing()] * 4,
    lambda: (HugeIndex(),) * 4,
    lambda: np.empty((2**40, 0, 3, 3), np.float32),
    lambda: np.empty((2**28, 1, 0, 1), np.float32),
    lambda: np.broadcast_to(np.float32(1), (2**15, 2**10, 3, 3)),
    lambda: np.zeros((1,) * 60),
    lambda: np.array(3.0),
    lambda: np.empty((0, 5)),
    lambda: np.empty((0, 4)),
    lambda: np.array([[None] * 5]),
    lambda: np.array("text"),
    lambda: np.zeros((3, 5), "M8[s]"),
    lambda: np.full((3, 5), 1e300),
    lambda: np.full((3, 5), 2**62),
]


def unaligned(array: np.ndarray) -> np.ndarray:
    """Return a copy that begins at an odd address."""
    memory = np.empty(array.nbytes + 1, np.uint8)[1:]
    copy = np.frombuffer(memory, array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def read_only(array: np.ndarray) -> np.ndarray:
    """Return a copy that cannot be written."""
    copy = array.copy()
    copy.flags.writeable = False
    return copy


DTYPES = ("?", "i1", "u8", "i8", "f2", "f4", "f8", "g", "c8", ">f4", ">f8", "O", "U9", "S9", "V4")
CHANGES: list[Callable[[Random, np.ndarray], Any]] = [
    lambda rng, a: a.astype(DTYPES[rng.integers(len(DTYPES))]),
    lambda rng, a: a.astype(DTYPES[rng.integers(len(DTYPES))]),
    lambda rng, a: a.T,
    lambda rng, a: a[::-1],
    lambda rng, a: a[..., ::-2],
    lambda rng, a: a[:0],
    lambda rng, a: a[..., :0],
    lambda rng, a: a[:1],
    lambda rng, a: a.reshape(-1),
    lambda rng, a: a[None],
    lambda rng, a: np.concatenate([a, a]),
    lambda rng, a: np.broadcast_to(a.ravel()[:1].sum(), a.shape),
    lambda rng, a: np.full_like(a, rng.choice([0, 1, 3, 100])),
    lambda rng, a: a * 1e30,
    lambda rng, a: a * math.nan,
    lambda rng, a: -a,
    lambda rng, a: a.view(LyingShape),
    lambda rng, a: a.view(LyingType),
    lambda rng, a: np.ma.masked_less(a, 1),
    lambda rng, a: unaligned(a),
    lambda rng, a: read_only(a),
    lambda rng, a: a.tolist(),
    lambda rng, a: [a, a],
    lambda rng, a: memoryview(np.ascontiguousarray(a)),
]


def wrong(rng: Random, value: Any) -> Any:
    """Return a replacement for an argument, or the argument with one wrong item."""
    way = rng.random()
    if isinstance(value, (list, tuple)) and value and way < 0.5:
        items = list(value)
        place = rng.integers(len(items))
        items[place] = wrong(rng, items[place])
        return type(value)(items)
    if isinstance(value, dict) and way < 0.5:
        name = str(rng.choice(list(value)))
        return {**value, name: wrong(rng, value[name])}
    if isinstance(value, np.ndarray) and way < 0.6:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return CHANGES[rng.integers(len(CHANGES))](rng, value)
    if way < 0.8:
        return NUMBERS[rng.integers(len(NUMBERS))]
    return OTHERS[rng.integers(len(OTHERS))]()


# Valid arguments of the public functions that random calls do not cover.
MASKS = np.ones((2, 1, 3, 3), np.float32)
MASK_BOXES = np.array([[1, 2, 5, 4], [0, 0, 3, 3.0]])
PASTED: dict[str, Any] = {"masks": MASKS, "boxes": MASK_BOXES, "image_size": (6, 7)}
TARGETS: dict[str, Any] = {"masks": np.ones((2, 6, 7), bool), "boxes": MASK_BOXES}
MASK_CALLS: dict[str, dict[str, Any]] = {
    "paste_masks": {**PASTED, "threshold": 0.5, "dtype": None, "crop": False, "out": None},
    "masks_to_rle": {**PASTED, "threshold": 0.5, "areas": True},
    "paste_masks_backward": {
        "grad_output": np.ones((2, 1, 6, 7), np.float32),
        "boxes": MASK_BOXES,
        "masks_shape": MASKS.shape,
    },
    "paste_masks_backward_boxes": {
        "grad_output": np.ones((2, 1, 6, 7), np.float32),
        "masks": MASKS,
        "boxes": MASK_BOXES,
    },
    "crop_masks": {**TARGETS, "indices": np.array([0, 1]), "size": 3, "threshold": 0.5},
    "compat.torchvision.paste_masks_in_image": {
        "masks": MASKS,
        "boxes": MASK_BOXES,
        "img_shape": (6, 7),
        "padding": 1,
    },
    "compat.torchvision.paste_masks_in_image_backward": {
        "grad_output": np.ones((2, 1, 6, 7), np.float32),
        "boxes": MASK_BOXES,
        "masks_shape": MASKS.shape,
        "padding": 1,
    },
    "compat.torchvision.project_masks_on_boxes": {
        "gt_masks": TARGETS["masks"],
        "boxes": MASK_BOXES,
        "matched_idxs": np.array([0, 1]),
        "M": 3,
    },
    "compat.detectron2.paste_masks_in_image": {
        "masks": MASKS,
        "boxes": MASK_BOXES,
        "image_shape": (6, 7),
        "threshold": 0.5,
    },
    "compat.mmdet.do_paste_mask": {
        "masks": MASKS,
        "boxes": MASK_BOXES,
        "img_h": 6,
        "img_w": 7,
        "skip_empty": True,
    },
    "compat.mmdet.crop_and_resize": {
        "masks": TARGETS["masks"],
        "bboxes": MASK_BOXES,
        "out_shape": 3,
        "inds": np.array([0, 1]),
        "binarize": True,
    },
    "compat.matterport.unmold_mask": {
        "mask": MASKS[0, 0],
        "bbox": np.array([1, 2, 4, 5]),
        "image_shape": (6, 7, 3),
    },
}
OTHER_CALLS: dict[str, dict[str, Any]] = {
    "crop": {
        "picture": np.arange(120, dtype=np.uint8).reshape(5, 8, 3),
        "boxes": np.array([[1, 2, 3, 4], [-1, 0, 9, 5.0]]),
        "size": 3,
        "box_format": "xyxy",
        "layout": "HWC",
        "antialias": True,
        "fill": 0,
        "progress": False,
    },
    "deform_roi_pool_backward_mask": {
        "grad_output": np.ones((2, 3, 2, 2), np.float32),
        "features": np.ones((1, 3, 5, 6), np.float32),
        "rois": np.array([[0, 1, 2, 4, 4], [0, 0, 1, 5, 3.0]]),
        "offsets": np.zeros((2, 2, 2, 2)),
        "spatial_scale": 1.0,
        "sampling_ratio": 2,
        "gamma": 0.1,
        "batch_indices": None,
        "layout": "NCHW",
    },
    "assign_levels": {
        "rois": np.array([[0, 1, 2, 30, 40], [0, 5, 5, 300, 300.0]]),
        "min_level": 2,
        "max_level": 5,
        "canonical_size": 224.0,
        "canonical_level": 4,
    },
    "compat.paddle.distribute_fpn_proposals": {
        "fpn_rois": np.array([[1, 2, 30, 40], [5, 5, 300, 300.0]]),
        "min_level": 2,
        "max_level": 5,
        "refer_level": 4,
        "refer_scale": 224,
        "pixel_offset": False,
        "rois_num": np.array([1, 1]),
    },
    **MASK_CALLS,
    "set_cache_limit": {"mebibytes": 16},
    "set_debug": {"enabled": False},
    "set_num_threads": {"n": 2},
}
DRAWN_BEFORE_ANOTHER = 20


def drawn_call(seed: int, number: int) -> FunctionCall:
    """Return a valid call of a public function."""
    if number % DRAWN_BEFORE_ANOTHER == 0:
        others = list(OTHER_CALLS)
        name = others[number // DRAWN_BEFORE_ANOTHER % len(others)]
        return FunctionCall(name, {**OTHER_CALLS[name]}, ())
    calls: list[FunctionCall] = []
    run(draw(seed, number, tiny=True), roipool, calls=calls)
    return calls[number % len(calls)]


def try_call(seed: int, number: int) -> Outcome:
    """Make one call with wrong arguments."""
    rng = np.random.default_rng((seed, number, 1))
    name, drawn, _ = drawn_call(seed, number)
    function = function_of(roipool, name)
    arguments = {**_defaults(function), **drawn}
    chosen = rng.choice(
        list(arguments), size=min(rng.choice([1, 1, 1, 2]), len(arguments)), replace=False
    )
    for argument in chosen:
        try:
            arguments[str(argument)] = wrong(rng, arguments[str(argument)])
        except (TypeError, ValueError, OverflowError):  # this array cannot be changed so
            arguments[str(argument)] = None
    label = f"{name} with another {', '.join(map(str, chosen))}"
    try:
        with time_limit(SECONDS):
            function(**arguments)
    except TimeIsUpError:
        return Outcome(CUT_SHORT)
    except (TypeError, ValueError, MemoryError) as error:
        message = "".join(map(str, error.args))
        fault = f"{label}: {len(message)} characters" if len(message) > MAX_MESSAGE else ""
        return Outcome(type(error).__name__, fault)
    except Exception as error:  # noqa: BLE001 - this program looks for unexpected exceptions
        return Outcome("another error", f"{label}: {type(error).__name__}: {error}"[:MAX_MESSAGE])
    finally:
        usual_settings()
    return Outcome("a result")


def _defaults(function: Callable[..., Any]) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters.values()
    return {one.name: one.default for one in parameters if one.default is not one.empty}


def usual_settings() -> None:
    """Restore settings that a call may have changed."""
    for name in ("set_cache_limit", "set_debug", "set_num_threads"):
        getattr(roipool, name)(**OTHER_CALLS[name])


if __name__ == "__main__":
    if "--worker" in sys.argv:
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", ".* all end at more than")  # boxes in pixels are drawn
        usual_settings()
        limit_memory(MEBIBYTES)
    sys.exit(main(__file__, __doc__ or "", try_call))
