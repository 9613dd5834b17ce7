from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from roipool._geometry import Geometry

Array = NDArray[Any]
Images = NDArray[np.int64]
Pair = tuple[int, int]

def definition_traits() -> dict[str, tuple[str, int, int]]: ...
def openmp_threads() -> int: ...
def has_openmp() -> bool: ...
def instruction_sets() -> tuple[str, ...]: ...
def instruction_set() -> str: ...
def use_instruction_set(name: str) -> None: ...

LARGE_RESULT_BYTES: int

def stream_results(fewest_bytes: int) -> None: ...
def keep_memory(mebibytes: int) -> None: ...
def empty_array(shape: int | Sequence[int], dtype: DTypeLike) -> Array: ...
def image_numbers(values: Array, images: int) -> tuple[Images, int]: ...
def average(
    features: Array,
    boxes: Array,
    images: Images,
    geometry: Geometry,
    output_size: Pair,
    *,
    layout: str,
    empty_value: float,
    threads: int,
    out: Array | None,
) -> Array: ...
def average_backward(
    grad_output: Array,
    boxes: Array,
    images: Images,
    geometry: Geometry,
    input_shape: Sequence[int],
    *,
    layout: str,
    threads: int,
    out: Array | None,
) -> Array: ...
def average_backward_boxes(
    grad_output: Array,
    features: Array,
    boxes: Array,
    images: Images,
    geometry: Geometry,
    *,
    layout: str,
    threads: int,
) -> Array: ...
def maximum(
    features: Array,
    boxes: Array,
    images: Images,
    geometry: Geometry,
    output_size: Pair,
    *,
    layout: str,
    lowest: float,
    empty_value: float,
    winner_is_cell: bool,
    outside_is_zero: bool,
    return_argmax: bool,
    threads: int,
    out: Array | None,
    nan_restarts: bool = ...,
) -> tuple[Array, Array | None]: ...
def maximum_backward(
    grad_output: Array,
    argmax: Array,
    boxes: Array,
    images: Images,
    geometry: Geometry | None,
    input_shape: Sequence[int],
    *,
    layout: str,
    winner_is_cell: bool,
    threads: int,
    out: Array | None,
) -> Array: ...
def locate(
    argmax: Array,
    boxes: Array,
    images: Images,
    geometry: Geometry,
    input_shape: Sequence[int],
    *,
    threads: int,
) -> tuple[Array, Array]: ...
def identify(
    y: Array,
    x: Array,
    boxes: Array,
    images: Images,
    geometry: Geometry,
    input_shape: Sequence[int],
    *,
    threads: int,
) -> Array: ...
