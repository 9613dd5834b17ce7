"""The computations of operators: on a device, or of tensors without values.

Functions take the arguments that ``_families`` describes; those that compute, a bridge before them.
Maps are (N, C, H, W) in either memory format.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from roipool import _arguments as check
from roipool import _engines
from roipool._arrays import LIBRARY_OF
from roipool._boxes import Regions
from roipool._definitions import POINTWISE
from roipool._request import Pooling, check_sizes, pooled_shape
from roipool.torch._families import Settings, pooling_of
from roipool.torch._fast_path import fast_average
from roipool.torch._memory import (
    FLOATS,
    INTEGERS,
    MAP_INTEGERS,
    Bridge,
    are_channels_last,
    as_stored,
    check_memory,
    empty_maps,
    map_array,
)

# ---- Checks, also of tensors without values


def check_tensors(
    name: str,
    maps: Tensor,
    boxes: Tensor,
    indices: Tensor | None,
    *,
    takes_integers: bool = False,
) -> None:
    """Check types and devices of boxes, and of the maps or pooled values of a given name."""
    are_integers = takes_integers and maps.dtype in MAP_INTEGERS
    if not (maps.dtype in FLOATS or are_integers) or maps.dim() != 4:
        allowed = "float16, bfloat16, float32 or float64"
        if takes_integers:
            allowed += ", or uint8, int8, uint16 or int16"
        raise TypeError(
            f"{name} must be a (N, C, H, W) tensor of dtype {allowed}, "
            f"got {maps.dtype} of shape {tuple(maps.shape)}"
        )
    for table, values in (("boxes", boxes), ("batch_indices", indices)):
        if values is None:
            continue
        if values.dtype not in FLOATS and values.dtype not in INTEGERS:
            raise TypeError(f"{table} must hold real numbers, got {values.dtype}")
        if values.device != maps.device:  # here, for the sake of small calls
            check_device(table, values, name, maps)
    if boxes.dim() != 2:
        raise ValueError(f"boxes must have 2 dimensions, got shape {tuple(boxes.shape)}")


def check_device(name: str, tensor: Tensor, maps_name: str, maps: Tensor) -> None:
    """Check that a tensor is on the device of the maps."""
    if tensor.device != maps.device:
        raise ValueError(
            f"{name} must be on the device of {maps_name}, {maps.device}, got {tensor.device}"
        )


def check_features(
    settings: Settings,
    boxes: Tensor,
    indices: Tensor | None,
    levels: Tensor | None,
    maps: Sequence[Tensor],
    *,
    of_forward: bool = True,
) -> dict[str, Tensor]:
    """Check maps and boxes; return the maps by the names that errors give them."""
    if not settings.family.is_pyramid:
        check_tensors("features", maps[0], boxes, indices, takes_integers=of_forward)
        return {"features": maps[0]}
    if not maps:
        raise ValueError("features must hold one map at least, got none")
    named = {f"features[{number}]": each for number, each in enumerate(maps)}
    for number, (name, each) in enumerate(named.items()):
        check_tensors(name, each, boxes, indices)
        if each.dtype is not maps[0].dtype:
            raise TypeError(
                f"{name} must have the dtype of features[0], {maps[0].dtype}, got {each.dtype}"
            )
        if each.shape[:2] != maps[0].shape[:2]:
            raise ValueError(
                f"features must have equal numbers of images and channels, got "
                f"{tuple(maps[0].shape)} and, at {number}, {tuple(each.shape)}"
            )
    check_levels(settings, "features", maps[0], levels, len(maps))
    return named


def check_levels(
    settings: Settings, maps_name: str, maps: Tensor, levels: Tensor | None, count: int
) -> None:
    """Check the levels of a pyramid's boxes, and that there is a scale for each of its maps."""
    assert levels is not None
    if levels.dtype not in INTEGERS:
        raise TypeError(f"levels must hold integers, got {levels.dtype}")
    if levels.dim() != 1:
        raise ValueError(f"levels must have shape (K,), got {tuple(levels.shape)}")
    check_device("levels", levels, maps_name, maps)
    if len(settings.scales) != count:
        raise ValueError(
            f"scales must hold one number per map: got {len(settings.scales)} for {count}"
        )


def checked_pooling(
    settings: Settings, shape: Sequence[int], channels_last: bool, size: tuple[int, int]
) -> Pooling:
    """Return an engine's request for maps of a shape."""
    family, placing, _, filling, *_ = settings
    pooling = pooling_of(family, placing, size, filling, channels_last)
    definition = pooling.definition
    # Not a call, for the sake of small ones.
    if definition.name in POINTWISE or definition.group_size != (1, 1):
        in_nchw = pooling._replace(layout="NCHW")
        check_sizes("features", shape, "output_size", in_nchw)
    return pooling


# ---- Kernels


def average(
    bridge: Bridge,
    settings: Settings,
    boxes: Tensor,
    indices: Tensor | None,
    levels: Tensor | None,
    *maps: Tensor,
) -> Tensor:
    """Pool maps by an average."""
    pooled = small_average(settings, boxes, indices, levels, *maps)
    if pooled is not None:
        return pooled
    features, regions, pooling, out = _prepare(bridge, settings, boxes, indices, levels, maps)
    result = bridge.array(as_stored(out, pooling.layout == "NHWC"))
    bridge.engine().average(features, regions, pooling, result)
    return out


def small_average(
    settings: Settings,
    boxes: Tensor,
    indices: Tensor | None,
    levels: Tensor | None,
    *maps: Tensor,
) -> Tensor | None:
    """Return the result of `average` on the fast path, or None if the call needs the usual way."""
    if indices is not None or levels is not None:
        return None
    fast = fast_average(settings)
    return None if fast is None else fast(maps[0], boxes)


def maximum(
    bridge: Bridge,
    settings: Settings,
    boxes: Tensor,
    indices: Tensor | None,
    levels: Tensor | None,
    *maps: Tensor,
) -> tuple[Tensor, Tensor]:
    """Pool maps by a maximum; return its argmax, too."""
    features, regions, pooling, out = _prepare(bridge, settings, boxes, indices, levels, maps)
    last = pooling.layout == "NHWC"
    result = bridge.array(as_stored(out, last))
    argmax = bridge.tensor(
        bridge.engine().maximum(*features, regions, pooling, result, return_argmax=True)
    )
    if argmax.dtype is not argmax_dtype(settings, maps[0].shape):
        argmax = _narrow(argmax)
    return out, argmax.permute(0, 3, 1, 2) if last else argmax


def _prepare(
    bridge: Bridge,
    settings: Settings,
    boxes: Tensor,
    indices: Tensor | None,
    levels: Tensor | None,
    maps: Sequence[Tensor],
) -> tuple[list[Any], Regions, Pooling, Tensor]:
    """Return the maps, the regions, the request, and a tensor for the pooled values."""
    named = check_features(settings, boxes, indices, levels, maps)
    last = are_channels_last(maps)
    check_memory(**named, boxes=boxes, batch_indices=indices, levels=levels)
    pooling = checked_pooling(settings, maps[0].shape, last, settings.size)
    features = [map_array(bridge, each, last) for each in maps]
    images, size = maps[0].shape[0], pooling.output_size
    at = settings, boxes, indices, levels
    regions = _regions(bridge, *at, images, features[0].dtype)
    groups = pooling.definition.group_size
    shape = pooled_shape(maps[0].shape, boxes.shape[0], size, "NCHW", groups)
    out = empty_maps(shape, maps[0], last)
    return features, regions, pooling, out


def average_backward(
    bridge: Bridge,
    settings: Settings,
    boxes: Tensor,
    indices: Tensor | None,
    levels: Tensor | None,
    grad_output: Tensor,
) -> tuple[Tensor, ...]:
    """Return the gradients of an average with respect to each of the maps."""
    gradient, regions, pooling, outs, results = _prepare_backward(
        bridge, settings, boxes, indices, levels, grad_output
    )
    bridge.engine().average_backward(gradient, regions, pooling, results)
    return outs


def maximum_backward(
    bridge: Bridge,
    settings: Settings,
    boxes: Tensor,
    indices: Tensor | None,
    levels: Tensor | None,
    grad_output: Tensor,
    argmax: Tensor,
) -> tuple[Tensor, ...]:
    """Return the gradient of a maximum with respect to the features."""
    if argmax.dtype not in INTEGERS:
        raise TypeError(f"argmax must be an integer tensor, got {argmax.dtype}")
    check_memory(argmax=argmax)
    gradient, regions, pooling, outs, (result,) = _prepare_backward(
        bridge, settings, boxes, indices, levels, grad_output
    )
    chosen = map_array(bridge, argmax, settings.channels_last)
    ((*_, height, width),) = settings.shapes
    cells = height * width if pooling.rules.argmax_is_cell else None
    library = LIBRARY_OF[type(chosen)]
    assert library is not None
    chosen = check.argmax(library, chosen, gradient.shape, cells)
    _engines.maximum_backward(bridge.engine(), gradient, chosen, regions, pooling, result)
    return outs


def _prepare_backward(
    bridge: Bridge,
    settings: Settings,
    boxes: Tensor,
    indices: Tensor | None,
    levels: Tensor | None,
    grad_output: Tensor,
) -> tuple[Any, Regions, Pooling, tuple[Tensor, ...], list[Any]]:
    """Return the gradient, the regions, the request, new maps, and these as arrays."""
    shapes, last = settings.shapes, settings.channels_last
    check_tensors("grad_output", grad_output, boxes, indices)
    if settings.family.is_pyramid:
        check_levels(settings, "grad_output", grad_output, levels, len(shapes))
        named = {f"input_shapes[{at}]": shape for at, shape in enumerate(shapes)}
        check.pyramid_shapes("input_shapes", named)
    else:
        check.map_shape("input_shape", shapes[0])
    check_memory(grad_output=grad_output, boxes=boxes, batch_indices=indices, levels=levels)
    pooling = checked_pooling(settings, shapes[0], last, tuple(grad_output.shape[2:]))
    gradient = map_array(bridge, grad_output, last)
    at = settings, boxes, indices, levels
    regions = _regions(bridge, *at, shapes[0][0], gradient.dtype)
    outs, results = [], []
    for shape in shapes:
        out = empty_maps(shape, grad_output, last)
        outs.append(out)
        results.append(bridge.array(as_stored(out, last) if last else out))
    stored = results[0].shape
    groups = pooling.definition.group_size
    check.grad_output("grad_output", gradient, len(regions.boxes), stored, pooling.layout, groups)
    return gradient, regions, pooling, tuple(outs), results


def average_backward_boxes(
    bridge: Bridge,
    settings: Settings,
    boxes: Tensor,
    indices: Tensor | None,
    levels: Tensor | None,
    grad_output: Tensor,
    *maps: Tensor,
) -> Tensor:
    """Return the gradient of an average with respect to the boxes, in their shape and dtype."""
    named = check_features(settings, boxes, indices, levels, maps, of_forward=False)
    check_tensors("grad_output", grad_output, boxes, indices)
    named["grad_output"] = grad_output
    check_memory(**named, boxes=boxes, batch_indices=indices, levels=levels)
    last = are_channels_last(maps)
    gradient, *features = (map_array(bridge, each, last) for each in (grad_output, *maps))
    check.same_dtype("grad_output", gradient, next(iter(named)), features[0])
    pooling = checked_pooling(settings, maps[0].shape, last, tuple(grad_output.shape[2:]))
    images, shape = maps[0].shape[0], features[0].shape
    at = settings, boxes, indices, levels
    regions = _regions(bridge, *at, images, features[0].dtype)
    groups = pooling.definition.group_size
    check.grad_output("grad_output", gradient, len(regions.boxes), shape, pooling.layout, groups)
    slopes = bridge.engine().average_backward_boxes(gradient, features, regions, pooling)
    found = bridge.tensor(slopes).to(box_dtype(boxes, maps[0]))
    # Batch indices, in a column of their own, have no gradient.
    has_index = boxes.shape[1] > regions.boxes.shape[1]
    return torch.nn.functional.pad(found, (1, 0)) if has_index else found


def _regions(
    bridge: Bridge,
    settings: Settings,
    boxes: Tensor,
    indices: Tensor | None,
    levels: Tensor | None,
    images: int,
    dtype: Any,
) -> Regions:
    """Return boxes in the form that engines read; a level of no map pools nothing."""
    table = bridge.array(boxes.float() if boxes.dtype is BFLOAT16 else boxes)
    numbers = indices
    if indices is not None:
        numbers = bridge.array(indices.float() if indices.dtype is BFLOAT16 else indices)
    cuts = settings.cuts
    regions = settings.family.regions(table, numbers, images, dtype, cuts=cuts)
    if levels is None:
        return regions
    own = bridge.array(levels)
    library = LIBRARY_OF[type(own)]
    assert library is not None
    return regions._replace(levels=library.table(own, check.INT64))


BFLOAT16 = torch.bfloat16  # which NumPy lacks


def argmax_dtype(settings: Settings, shape: Sequence[int]) -> torch.dtype:
    """Return the dtype of the argmax of maps of a shape."""
    if settings.rules.argmax_is_cell and shape[2] * shape[3] > check.MAX_AXIS:
        return torch.int64
    return torch.int32


def _narrow(argmax: Tensor) -> Tensor:
    """Return an argmax that numbers samples as int32."""
    if argmax.device.type == "cpu":  # the engine counted them: they do not fit
        raise ValueError(
            f"a bin's adaptive grid has more than {check.MAX_AXIS} samples; give a sampling_ratio"
        )
    return argmax.to(torch.int32)


def box_dtype(boxes: Tensor, features: Tensor) -> torch.dtype:
    """Return the dtype of the gradient with respect to the boxes."""
    if boxes.dtype in FLOATS:
        return boxes.dtype
    return torch.float64 if features.dtype is torch.float64 else torch.float32


# ---- Results without values


def fake_average(
    settings: Settings, boxes: Tensor, indices: Tensor | None, levels: Tensor | None, *maps: Tensor
) -> Tensor:
    """Return the result of `average` without values."""
    check_features(settings, boxes, indices, levels, maps)
    size, groups = settings.size, settings.group_size
    shape = pooled_shape(maps[0].shape, boxes.shape[0], size, "NCHW", groups)
    return empty_maps(shape, maps[0], are_channels_last(maps))


def fake_maximum(
    settings: Settings, boxes: Tensor, indices: Tensor | None, levels: Tensor | None, *maps: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the results of `maximum` without values."""
    pooled = fake_average(settings, boxes, indices, levels, *maps)
    return pooled, torch.empty_like(pooled, dtype=argmax_dtype(settings, maps[0].shape))


def fake_backward(
    settings: Settings,
    boxes: Tensor,
    indices: Tensor | None,
    levels: Tensor | None,
    grad_output: Tensor,
    argmax: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """Return the results of `average_backward` or `maximum_backward` without values."""
    if argmax is not None:
        check_device("argmax", argmax, "grad_output", grad_output)
    check_tensors("grad_output", grad_output, boxes, indices)
    if settings.family.is_pyramid:
        check_levels(settings, "grad_output", grad_output, levels, len(settings.shapes))
    last = settings.channels_last
    return tuple(empty_maps(shape, grad_output, last) for shape in settings.shapes)


def fake_backward_boxes(
    settings: Settings,
    boxes: Tensor,
    indices: Tensor | None,
    levels: Tensor | None,
    grad_output: Tensor,
    *maps: Tensor,
) -> Tensor:
    """Return the result of `average_backward_boxes` without values."""
    check_features(settings, boxes, indices, levels, maps, of_forward=False)
    check_tensors("grad_output", grad_output, boxes, indices)
    return boxes.new_empty(boxes.shape, dtype=box_dtype(boxes, maps[0]))


# By verb: the function that computes it, and the one that returns results without values.
KERNELS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "average": (average, fake_average),
    "average_backward": (average_backward, fake_backward),
    "average_backward_boxes": (average_backward_boxes, fake_backward_boxes),
    "maximum": (maximum, fake_maximum),
    "maximum_backward": (maximum_backward, fake_backward),
}
