"""How compiled programs reach the kernels: XLA calls a handler of roipool, or the host.

The handler needs neither Python nor the GIL: on a CPU it runs the kernels, on NVIDIA's GPUs it
launches them (``roipool.jax._cuda``). A jaxlib that refuses it has none, nor have other devices:
then the program calls back the host, with NumPy arrays, which copies them.
"""

from __future__ import annotations

import functools
import re
import threading
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from roipool import _cpu
from roipool._boxes import Regions
from roipool._cuda import driver
from roipool._definitions import MOVES_WITH_BOXES, TRAITS, Depth
from roipool._dtypes import POOLED_DTYPES
from roipool._engines import maximum_backward
from roipool._request import Pooling, needs_no_boxes
from roipool._settings import NON_TEMPORAL_BYTES, check_environment

Results = Sequence[jax.ShapeDtypeStruct]
Shapes = Sequence[tuple[int, ...]]
Array = Any


class Request(NamedTuple):
    """What is no array in a kernel's call; hashable, so that compiled calls can hold it."""

    operation: str  # the public function, for messages
    pooling: Pooling  # the request to an engine

    @property
    def moves_with_boxes(self) -> bool:
        """Whether pooled values follow the boxes, rather than jump from cell to cell."""
        return self.pooling.definition.name in MOVES_WITH_BOXES

    @property
    def of_tangent(self) -> Request:
        """The request for a change of the maps: bins outside them have a change of 0."""
        return self._replace(pooling=self.pooling._replace(empty_value=0.0))

    def refusal(self, what: str) -> NotImplementedError:
        """Return the error for a derivative that no kernel computes."""
        return NotImplementedError(f"{self.operation}: roipool computes no {what}")


TARGET = "roipool_cpu"
TARGET_OF_GPUS = "roipool_cuda"
NO_DEPTH = Depth(0, 0, 0, 1.0, 1.0)  # of maps, which are no volumes


_registering = threading.Lock()


def register_if_known() -> None:
    """Register the handler, if jaxlib says that it has an interface that the handler knows.

    So programs of `jax.export` find it in a new process, which lowers nothing. No backend starts:
    JAX queues the registration until then.
    """
    major, minors = _cpu.XLA_INTERFACES
    try:
        header = Path(jax.ffi.include_dir(), "xla", "ffi", "api", "c_api.h").read_text()
        version = re.findall(r"#define XLA_FFI_API_M(?:AJ|IN)OR (\d+)", header)
        if version in [[str(major), str(minor)] for minor in minors]:
            jax.ffi.register_ffi_target(TARGET, _cpu.xla_handler(), platform="cpu")
            _register_for_gpus()
    except Exception:  # noqa: BLE001 - whatever is amiss: `why_no_handler` tries again, and tells
        return


def why_no_handler() -> str:
    """Register the handler once; return why there is none, or nothing.

    It starts JAX's CPU backend, which a registration before would only be queued for: a refusal
    would then be a failure of that backend, and JAX could not be used at all.
    """
    with _registering:
        return _register()


@functools.cache
def _register() -> str:
    try:
        jax.local_devices(backend="cpu")
        jax.ffi.register_ffi_target(TARGET, _cpu.xla_handler(), platform="cpu")
    except Exception as error:  # noqa: BLE001 - a jaxlib that is too old or too new
        warnings.warn(
            f"roipool: compiled programs call the kernels by slower callbacks: jaxlib refuses the "
            f"handler: {error}",
            RuntimeWarning,
            stacklevel=4,
        )
        return f"jaxlib refuses the handler: {error}"
    return ""


def _register_for_gpus() -> bool:
    """Register the handler that launches kernels; return whether there is a driver to do so."""
    functions = driver.addresses(*driver.FUNCTIONS)
    if functions:
        handler = _cpu.xla_cuda_handler(functions)
        stages = {"initialize": handler, "execute": handler}
        jax.ffi.register_ffi_target(TARGET_OF_GPUS, stages, platform="CUDA")
    return bool(functions)


@functools.cache
def why_not_on_gpus() -> str:
    """Register the handler for GPUs once; return why programs cannot launch kernels, or nothing."""
    with _registering:
        try:
            jax.local_devices(backend="cuda")
            if not _register_for_gpus():
                return f"the library of CUDA's driver, {driver.LIBRARY}, is missing"
        except Exception as error:  # noqa: BLE001 - a jaxlib that is too old or too new, no GPU
            return f"JAX has no CUDA, or refuses the handler: {error}"
    return ""


def transport(platform: str = "cpu") -> str:
    """Return in words how programs call the kernels.

    Parameters
    ----------
    platform : {"cpu", "cuda"}
        The platform of the programs: a CPU, or NVIDIA's GPUs.

    Returns
    -------
    str
        "handlers of XLA", or "callbacks of the host" with the reason.

    Examples
    --------
    >>> import roipool.jax
    >>> roipool.jax.transport()
    'handlers of XLA'
    """
    reasons: dict[str, Callable[[], str]] = {"cpu": why_no_handler, "cuda": why_not_on_gpus}
    if platform not in reasons:
        raise ValueError(f"platform must be 'cpu' or 'cuda', got {platform!r}")
    reason = reasons[platform]()
    return f"callbacks of the host ({reason})" if reason else "handlers of XLA"


def call_cpu(
    kernel: str, operands: Sequence[Array], results: Results, request: Request
) -> list[Array]:
    """Return the results of a kernel in a program for a CPU."""
    call = call_host if why_no_handler() else call_handler
    return call(kernel, operands, results, request)


def call_handler(
    kernel: str, operands: Sequence[Array], results: Results, request: Request
) -> list[Array]:
    """Return the results of a kernel that XLA calls, in a program for a CPU."""
    check_environment()
    if (empty := without_kernel(kernel, operands, results, request)) is not None:
        return empty
    pooling = request.pooling
    definition, rules = pooling.definition, pooling.rules
    depth = definition.depth or NO_DEPTH
    operation = kernel
    if kernel == "maximum_backward" and needs_no_boxes(pooling):
        operation = "unpool"
    # In the order of `Integer` and `Real` in kernels/cpu/xla.h.
    integers = [
        _cpu.XLA_OPERATIONS[operation],
        list(TRAITS).index(definition.name),
        *definition.sampling,
        definition.aligned,
        pooling.layout == "NHWC",
        rules.argmax_is_cell,
        rules.nan_restarts,
        rules.outside_is_zero,
        NON_TEMPORAL_BYTES,
        *pooling.group_size,
        depth.bins,
        depth.planes,
        depth.sampling,
        len(pooling.scales),
    ]
    angle, offset = definition.angle_scale, definition.offset_factor
    scales = [depth.scale, depth.row_scale]
    reals = [angle, offset, pooling.empty_value, rules.lowest, *scales]
    found: Sequence[Array] = jax.ffi.ffi_call(TARGET, tuple(results))(
        *operands,
        integers=np.array(integers, np.int64),
        reals=np.array(reals, np.float64),
        scales=np.array(pooling.map_scales, np.float64),
    )
    return list(found)


def call_host_from_device(
    kernel: str,
    operands: Sequence[Array],
    results: Results,
    request: Request,
    why: str = "roipool has no kernels for this device",
) -> list[Array]:
    """Return the results of a kernel in a program for a device that is no CPU, with a warning."""
    warnings.warn(
        f"roipool: {request.operation} runs on the CPU ({why}): at every call, this program copies "
        "its arrays from the device to the host, and the results back; to keep them on the host, "
        "move the arrays with jax.device_put(array, jax.devices('cpu')[0])",
        RuntimeWarning,
        stacklevel=2,
    )
    return call_host(kernel, operands, results, request)


def call_host(
    kernel: str, operands: Sequence[Array], results: Results, request: Request
) -> list[Array]:
    """Return the results of a kernel that runs in a callback, in a program for any device."""
    check_environment()
    if (empty := without_kernel(kernel, operands, results, request)) is not None:
        return empty

    shapes = [each.shape for each in results]

    def compute(*arrays: Any) -> tuple[Any, ...]:
        return HOST_KERNELS[kernel](request, shapes, *map(np.asarray, arrays))

    return list(jax.pure_callback(compute, tuple(results), *operands))


def without_kernel(
    kernel: str, operands: Sequence[Array], results: Results, request: Request
) -> list[Array] | None:
    """Return the results where there is nothing to compute, else None."""
    is_forward, maps = kernel in ("average", "maximum"), operands[0].shape
    if is_forward and (maps[0] == 0 or (0 in maps and not request.pooling.scales)):
        fills: list[float] = [request.pooling.empty_value, -1]
    elif request.pooling.scales and not _is_empty_pyramid(kernel, operands, results):
        return None
    elif any(0 in array.shape for array in (*operands, *results)):
        fills = [0] * len(results) if request.pooling.scales else [0, -1]
    else:
        return None
    return [
        jnp.full(each.shape, fill, each.dtype)
        for each, fill in zip(results, fills[: len(results)], strict=True)
    ]


def _is_empty_pyramid(kernel: str, operands: Sequence[Array], results: Results) -> bool:
    """Return whether a pyramid has no boxes, images or channels; single maps may have no cells."""
    pooled = results[0] if kernel == "average" else operands[0]
    images = results if kernel == "average_backward" else operands[:-3]
    return 0 in pooled.shape or images[-1].shape[0] == 0


# ---- Functions of NumPy arrays


def on_host(
    compute: Callable[..., Any], results: Results, *arrays: Array, method: str
) -> list[Array]:
    """Return the results of a function of NumPy arrays, without derivatives.

    `method` is how ``jax.pure_callback`` computes a batch of calls. Numbers of 64 bits are handed
    on as pairs of 32: where JAX's types of 64 bits are off, a callback would round them.
    """

    def compute_on_pairs(*given: Any) -> list[Any]:
        both = zip(given, constants, strict=True)
        own = [_from_pairs(np.asarray(each), one.dtype) for each, one in both]
        found = compute(*own)
        both = zip(found, results, strict=True)
        return [_in_pairs(np.asarray(each, one.dtype)) for each, one in both]

    constants = [jax.lax.stop_gradient(jnp.asarray(each)) for each in arrays]
    pairs = [
        jax.lax.bitcast_convert_type(each, jnp.uint32) if each.dtype.itemsize == 8 else each
        for each in constants
    ]
    kinds = [
        jax.ShapeDtypeStruct((*each.shape, 2), jnp.uint32) if each.dtype.itemsize == 8 else each
        for each in results
    ]
    found = jax.pure_callback(compute_on_pairs, kinds, *pairs, vmap_method=method)
    return [
        jax.lax.bitcast_convert_type(each, result.dtype) if result.dtype.itemsize == 8 else each
        for each, result in zip(found, results, strict=True)
    ]


def _in_pairs(array: Any) -> Any:
    if array.dtype.itemsize < 8:
        return array
    return np.ascontiguousarray(array)[..., np.newaxis].view(np.uint32)


def _from_pairs(array: Any, dtype: Any) -> Any:
    return array if dtype.itemsize < 8 else np.ascontiguousarray(array).view(dtype)[..., 0]


# ---- Kernels on the host


def _split(request: Request, operands: Sequence[Any]) -> tuple[list[Any], Regions]:
    """Return the maps or gradients among operands, and the regions, which are the last of them."""
    if not request.pooling.scales:
        *arrays, boxes, indices = operands
        return arrays, Regions(np.ascontiguousarray(boxes), indices.astype(np.int64))
    *arrays, boxes, indices, levels = operands
    numbers = levels.astype(np.int64)
    return arrays, Regions(np.ascontiguousarray(boxes), indices.astype(np.int64), numbers)


def _pooled(shape: Sequence[int], features: Any) -> Any:
    """Return an array for values pooled from features."""
    return _cpu.empty_array(shape, POOLED_DTYPES.get(features.dtype, features.dtype))


def _average(request: Request, shapes: Shapes, *operands: Any) -> Any:
    features, regions = _split(request, operands)
    out = _pooled(shapes[0], features[0])
    _cpu.average(features, regions, request.pooling, out)
    return (out,)


def _average_backward(request: Request, shapes: Shapes, *operands: Any) -> Any:
    (grad,), regions = _split(request, operands)
    outs = [_cpu.empty_array(shape, grad.dtype) for shape in shapes]
    _cpu.average_backward(grad, regions, request.pooling, outs)
    return tuple(outs)


def _box_gradient(request: Request, shapes: Shapes, *operands: Any) -> Any:
    (grad, *features), regions = _split(request, operands)
    return (_cpu.average_backward_boxes(grad, features, regions, request.pooling),)


def _maximum(request: Request, shapes: Shapes, *operands: Any) -> Any:
    (features,), regions = _split(request, operands)
    out = _pooled(shapes[0], features)
    argmax = _cpu.maximum(features, regions, request.pooling, out, return_argmax=True)
    assert argmax is not None
    if argmax.dtype != np.int32:
        raise ValueError(
            f"{request.operation}: a bin's adaptive grid has more than 2**31 - 1 samples; give a "
            "sampling_ratio"
        )
    return out, argmax


def _maximum_backward(request: Request, shapes: Shapes, *operands: Any) -> Any:
    (grad, argmax), regions = _split(request, operands)
    out = _cpu.empty_array(shapes[0], grad.dtype)
    maximum_backward(_cpu, grad, argmax, regions, request.pooling, out)
    return (out,)


HOST_KERNELS: dict[str, Callable[..., tuple[Any, ...]]] = {
    "average": _average,
    "average_backward": _average_backward,
    "box_gradient": _box_gradient,
    "maximum": _maximum,
    "maximum_backward": _maximum_backward,
}
