"""Kernels in programs for NVIDIA's GPUs, which XLA launches through ``kernels/cpu/xla_cuda.h``.

The shapes of a program are known when it is lowered, and so is everything about its launches: here
they are planned, as for CuPy arrays, and their kernels compiled. The program carries the machine
code and the structures that kernels take, so that nothing is left to decide when it runs. XLA
allocates all memory, scratch memory as a result that is dropped.

What has no launch is computed on the host, with a warning that says why.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from roipool._cuda import driver, launch, nvrtc
from roipool._cuda.arguments import MAX_LEVELS, Argument
from roipool._cuda.driver import LEAST_CAPABILITY, Gpu
from roipool._cuda.launch import LaunchConfig, Launches
from roipool._cuda.partition import SHARED_BYTES, Limits, Sizes
from roipool._cuda.source import kernel_source
from roipool._definitions import Definition
from roipool._request import Pooling, needs_no_boxes
from roipool._settings import check_environment
from roipool.jax import _transport
from roipool.jax._transport import TARGET_OF_GPUS, Request, Results

Array = Any

INT32 = np.dtype(np.int32)  # of batch indices, levels and an argmax
NO_ARRAY = -1
MOST_ARGUMENTS = 8  # of a kernel, beside its structure: `most_arguments` in xla_cuda.h


class NoLaunchError(Exception):
    """Says why a program computes on the host."""


def call_cuda(
    kernel: str, operands: Sequence[Array], results: Results, request: Request
) -> list[Array]:
    """Return the results of a kernel in a program for NVIDIA's GPUs."""
    check_environment()
    if (empty := _without_launch(kernel, operands, results, request)) is not None:
        return empty
    try:
        attributes, scratch = program_of(kernel, operands, results, request.pooling)
    except NoLaunchError as why:
        return _transport.call_host_from_device(kernel, operands, results, request, str(why))
    more = [jax.ShapeDtypeStruct((scratch,), np.uint8)] if scratch else []
    found: Sequence[Array] = jax.ffi.ffi_call(TARGET_OF_GPUS, (*results, *more))(
        *operands, **attributes
    )
    return list(found[: len(results)])


def _without_launch(
    kernel: str, operands: Sequence[Array], results: Results, request: Request
) -> list[Array] | None:
    """Return the results where there is nothing to compute, else None."""
    empty = _transport.without_kernel(kernel, operands, results, request)
    if empty is not None or kernel in ("average", "maximum"):
        return empty
    arrays, shaped = arrays_of(kernel, operands, results, request.pooling), (*operands, *results)
    if any(0 not in shaped[number].shape for number in arrays.maps):
        return None
    return [jnp.zeros(each.shape, each.dtype) for each in results]


def program_of(
    kernel: str, operands: Sequence[Array], results: Results, pooling: Pooling
) -> tuple[dict[str, np.ndarray[Any, Any]], int]:
    """Return what a program carries of a call, and the bytes of its scratch memory.

    Raises
    ------
    NoLaunchError
        If the kernel cannot be launched, or not be compiled.
    """
    if why := _transport.why_not_on_gpus():
        raise NoLaunchError(why)
    gpu = only_gpu()
    limits = Limits(multiprocessor_bytes=gpu.multiprocessor_bytes, block_bytes=gpu.block_bytes)
    arrays = arrays_of(kernel, operands, results, pooling)
    sizes = sizes_of(arrays, (*operands, *results), pooling, limits)
    launches = launches_of(arrays.kernel, sizes)
    steps = steps_of(launches, arrays, scratch=len(operands) + len(results))
    return attributes_of(steps, launches.zeros, gpu), launches.scratch


def gpu_numbers() -> list[int]:
    """Return the driver's numbers of this process's GPUs."""
    return [each.local_hardware_id for each in jax.local_devices(backend="cuda")]


def only_gpu() -> Gpu:
    """Return the facts of this process's GPUs; raise NoLaunchError if kernels do not run on all."""
    try:
        gpus = {driver.gpu(number) for number in gpu_numbers()}
    except RuntimeError as error:
        raise NoLaunchError(str(error)) from error
    gpu, *others = gpus
    if others:
        capabilities = ", ".join(sorted(str(each.capability / 10) for each in gpus))
        raise NoLaunchError(
            f"a program has the machine code of one kind of GPU, and this process has several, of "
            f"compute capability {capabilities}: hide some by CUDA_VISIBLE_DEVICES"
        )
    if gpu.capability < LEAST_CAPABILITY:
        raise NoLaunchError(
            f"the GPU has compute capability {gpu.capability / 10}; roipool's kernels need "
            f"{LEAST_CAPABILITY / 10} (Volta) or later"
        )
    return gpu


# ---- Arrays: operands and results of a call, by their numbers, counted through both


class Arrays(NamedTuple):
    """The arrays of a call, as its kernels take them."""

    kernel: str  # a function of ``roipool._cuda.launch``
    regions: tuple[int, int, int]  # the boxes, their indices and levels
    # What the kernel reads and writes beside them. Of a pyramid's maps, the first.
    own: tuple[int, ...]
    maps: Sequence[int]  # all maps, or gradients of maps


def arrays_of(kernel: str, operands: Sequence[Array], results: Results, pooling: Pooling) -> Arrays:
    """Return the arrays of a call: its maps and gradients come first, boxes and more after them."""
    last = len(operands) - 1
    boxes = last - (2 if pooling.scales else 1)
    regions = (boxes, boxes + 1, last if pooling.scales else NO_ARRAY)
    given, made = range(boxes), range(last + 1, last + 1 + len(results))
    if kernel == "average_backward":
        return Arrays(kernel, regions, (0, made[0]), made)
    if kernel == "box_gradient":
        return Arrays("average_backward_boxes", regions, (0, 1, made[0]), given[1:])
    if kernel == "maximum_backward":
        own = "unpool" if needs_no_boxes(pooling) else kernel
        return Arrays(own, regions, (0, 1, made[0]), made)
    return Arrays(kernel, regions, (0, *made), given)


def sizes_of(arrays: Arrays, shaped: Sequence[Any], pooling: Pooling, limits: Limits) -> Sizes:
    """Return the sizes of a call, whose arrays lie in C order and begin where vectors may."""
    boxes = shaped[arrays.regions[0]]
    maps = [shaped[number] for number in arrays.maps]
    if len(maps) > MAX_LEVELS:
        raise NoLaunchError(f"{len(maps)} maps are more than {MAX_LEVELS}")
    is_forward = arrays.kernel in ("average", "maximum")
    pooled, dtype = shaped[arrays.own[1 if is_forward else 0]], np.dtype(maps[0].dtype)
    item = boxes.dtype.itemsize
    return Sizes(
        np.dtype(pooled.dtype),
        boxes.shape[0],
        (boxes.shape[1] * item, item),
        INT32,
        INT32.itemsize,
        pooling,
        tuple(each.shape for each in maps),
        limits,
        dtype if dtype != pooled.dtype else None,
        has_narrow_levels=bool(pooling.scales),
    )


# ---- Launches


def _maximum(sizes: Sizes) -> Launches:
    if launch.argmax_dtype(sizes) != INT32:
        raise NoLaunchError(
            "the argmax of such large maps, or of an adaptive grid, may need 64 bits; a "
            "sampling_ratio fixes the grid"
        )
    return launch.maximum(sizes, return_argmax=True, vector_aligned=sizes.channels_last)


def _unpool(sizes: Sizes) -> Launches:
    # No box is read, so that any definition will do.
    pooling = sizes.pooling._replace(definition=Definition("roi_pool"))
    return launch.unpool(sizes._replace(pooling=pooling), wide=False)


LAUNCHES: dict[str, Callable[[Sizes], Launches]] = {
    "average": lambda sizes: launch.average(sizes, sizes.channels_last),
    "average_backward": lambda sizes: launch.average_backward(sizes, sizes.channels_last),
    "average_backward_boxes": launch.average_backward_boxes,
    "maximum": _maximum,
    "maximum_backward": lambda sizes: launch.maximum_backward(sizes, wide=False),
    "unpool": _unpool,
}


def launches_of(kernel: str, sizes: Sizes) -> Launches:
    """Return the launches of a kernel; raise NoLaunchError where only the host has no limit."""
    try:
        return LAUNCHES[kernel](sizes)
    except ValueError as error:
        raise NoLaunchError(str(error)) from error


class Step(NamedTuple):
    """A launch with the arrays that it takes; `maps` are those whose addresses it reads."""

    config: LaunchConfig
    arguments: tuple[int, ...]
    maps: Sequence[int] = ()


def steps_of(launches: Launches, arrays: Arrays, scratch: int) -> list[Step]:
    """Return launches in their order, as ``roipool._cuda.engine`` makes them."""
    kernel, (boxes, indices, levels), own, maps = arrays
    several = maps if levels != NO_ARRAY else ()
    if not launches.scratch:
        scratch = NO_ARRAY
    if kernel == "unpool":
        steps = [Step(launches.engine, (*own, indices))]
    elif launches.plan is None:
        steps = [Step(launches.engine, (*arrays.regions, *own, scratch), several)]
    else:
        table = (boxes,) if launches.plan_points_to_boxes else ()
        steps = [
            Step(launches.plan, (*arrays.regions, scratch)),
            Step(launches.engine, (*table, *own, scratch), several),
        ]
    return [step for step in steps if step.config.grid.blocks > 0]


def attributes_of(steps: Sequence[Step], zeros: int, gpu: Gpu) -> dict[str, Any]:
    """Return launches as the handler reads them: `read` in xla_cuda.h."""
    numbers: list[int] = []
    patches: list[int] = []
    structures = b""
    for config, arguments, maps in steps:
        argument = Argument(config.call, config.tasks_of_box)
        for place, number in zip(argument.addresses_at, maps, strict=False):
            patches += [len(structures) + place, number]
        structures += argument.structure
        (across, down), shared = (*config.grid.threads, 1)[:2], config.grid.shared
        numbers += [config.grid.blocks, across, down, shared, len(argument.structure)]
        unused = [NO_ARRAY] * (MOST_ARGUMENTS - len(arguments))
        numbers += [len(arguments), *arguments, *unused]
    needs_more = any(step.config.grid.shared > SHARED_BYTES for step in steps)
    shared = gpu.block_bytes if needs_more else 0
    # All kernels of a call are in one text.
    image = machine_code(steps[0].config, gpu)
    names = b"".join(step.config.name.encode() + b"\0" for step in steps)
    key = hashlib.sha256(b"\0".join([image, names, str(shared).encode()])).digest()
    header = [zeros, shared, len(steps), len(patches) // 2]
    data = {"image": image, "key": key, "names": names, "structures": structures}
    return {
        **{name: np.frombuffer(each, np.uint8) for name, each in data.items()},
        "numbers": np.array([*header, *numbers, *patches], np.int64),
    }


def machine_code(config: LaunchConfig, gpu: Gpu) -> bytes:
    """Return the machine code of a launch's text; raise NoLaunchError if nothing compiles it."""
    source = kernel_source(config.file, **dict(config.defines))
    try:
        return nvrtc.machine_code(source, gpu.capability, driver.version())
    except FileNotFoundError as error:
        raise NoLaunchError(f"NVRTC, CUDA's compiler, is missing: {error}") from error
    except SyntaxError as error:
        raise NoLaunchError(f"NVRTC refuses a kernel: {error}") from error
