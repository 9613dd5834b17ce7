"""Faults of front ends, of arguments and of `compat`; all are in Python and need no build.

Those of a front end are found where its library is installed.
"""

from __future__ import annotations

from faults import Fault

TORCH = "tests/front_ends/test_torch_"
TORCH_BATCHES = f"{TORCH}derivatives.py {TORCH}contract.py"
TORCHVISION = f"tests/front_ends/test_torchvision_contract.py {TORCH}torchvision.py"
LEVELS = f"{TORCH}multi_scale.py"
JAX = "tests/front_ends/test_jax_"
DASK = "tests/front_ends/test_dask.py"
OTHER = "tests/front_ends/test_other_arrays.py tests/front_ends/test_array_api_strict.py"
CUPY = "tests/cuda/test_arrays.py tests/front_ends/test_random_calls_cupy.py -k 'emulator or cupy'"
ARGUMENTS = "tests/arguments"
COMPAT = "tests/compat"

FRONT_ENDS = [
    Fault(
        "torch: a batch of images",
        "roipool/torch/_batching.py",
        "numbers = torch.where(is_image, numbers.nan_to_num().long() + first, -1)",
        "numbers = torch.where(is_image, numbers.nan_to_num().long(), -1)",
        "each call's boxes read the images of the first call",
        TORCH_BATCHES,
    ),
    Fault(
        "torch: a wrong index in a batch",
        "roipool/torch/_batching.py",
        "is_image = (numbers >= 0) & (numbers < images) & (numbers == numbers.floor())",
        "is_image = (numbers >= 0) & (numbers == numbers.floor())",
        "an index past the last image becomes an image of the next call",
        TORCH_BATCHES,
    ),
    Fault(
        "torch: freed storage",
        "roipool/torch/_memory.py",
        "return (begin + extent) * tensor.element_size() <= held",
        "return extent * tensor.element_size() <= held",
        "the offset of a view is ignored: memory past the storage's end is read",
        f"{TORCH}memory.py",
    ),
    Fault(
        "torch: torchvision's negative ratio",
        "roipool/torch/_torchvision.py",
        "grad, _cut(rois), shape, spatial_scale, sampling_ratio, aligned",
        "grad, _cut(rois), shape, spatial_scale, abs(sampling_ratio), aligned",
        "the gradient treats -1 as one sample, the forward as an adaptive grid",
        TORCHVISION,
    ),
    Fault(
        "torch: torchvision's batch index",
        "roipool/torch/_torchvision.py",
        "rois[:, :1].trunc()",
        "rois[:, :1].round()",
        "a batch index with a fraction is rounded instead of truncated",
        TORCHVISION,
    ),
    Fault(
        "torch: areas of half types",
        "roipool/torch/nn/_multi_scale.py",
        "return boxes if boxes.dtype is torch.float64 else boxes.float()",
        "return boxes",
        "areas are computed in float16, which assigns boxes to other maps",
        LEVELS,
    ),
    Fault(
        "torch: offset of levels",
        "roipool/torch/nn/_multi_scale.py",
        "level = (canonical_level + level + 1e-6).floor().clamp(first, last) - first",
        "level = (canonical_level + level).floor().clamp(first, last) - first",
        "torchvision's offset 1e-6 is missing: boxes at a level's limit go to the finer map",
        LEVELS,
    ),
    Fault(
        "torch: negative ratios of a pair",
        "roipool/torch/nn/_options.py",
        "return tuple(max(each, 0) for each in check.items(ratio, 2))",
        "return check.items(ratio, 2)",
        "negative ratios of a pair are kept instead of set to 0",
        f"{TORCH}tracing.py {TORCH}package.py",
    ),
    Fault(
        "jax: indices beyond 32 bits",
        "roipool/jax/_library.py",
        "is_image = (numbers >= 0) & (numbers < images)",
        "is_image = (numbers.astype(jnp.int32) >= 0) & (numbers.astype(jnp.int32) < images)",
        "traced indices are truncated to 32 bits before they are compared",
        f"{JAX}settings.py",
    ),
    Fault(
        "jax: rounded twice",
        "roipool/jax/_library.py",
        "found = [boxes, _image_numbers(_constant(indices), images)]",
        "rounded = boxes.astype(np.float32).astype(boxes.dtype)\n"
        "    found = [rounded, _image_numbers(_constant(indices), images)]",
        "traced boxes of float64 maps are rounded to float32",
        f"{JAX}contract.py",
    ),
    Fault(
        "jax: boxes of a constant",
        "roipool/jax/_calls.py",
        "name: _mapped(value, _constant) if name in fixed else value",
        "name: value",
        "boxes whose bins are moved by offsets alone get a gradient",
        f"{JAX}contract.py",
    ),
    Fault(
        "jax: fill of a tangent",
        "roipool/jax/_primitives.py",
        'parts.append(bind("average", request.of_tangent, *_filled(changes, maps), *at))',
        'parts.append(bind("average", request, *_filled(changes, maps), *at))',
        "the tangent of crops contains the extrapolation value",
        f"{JAX}contract.py",
    ),
    Fault(
        "jax: change of a slope",
        "roipool/jax/_primitives.py",
        'parts.append(bind("box_gradient", request, grad, *_filled(changes, maps), *at))',
        'parts.append(bind("box_gradient", request, grad, *maps, *at))',
        "the tangent of a box's gradient is computed from the maps instead of their tangents",
        f"{JAX}contract.py",
    ),
    Fault(
        "dask: indices of a chunk",
        "roipool/dask/_library.py",
        "else indices - starts[number]",
        "else indices - starts[number] * (number > 1)",
        "the second chunk's images keep the numbers of the whole batch",
        DASK,
    ),
    Fault(
        "dask: order of rows",
        "roipool/dask/_library.py",
        'else pooled[np.argsort(order, kind="stable")]',
        "else pooled[order]",
        "rows are restored in the inverse order",
        DASK,
    ),
    Fault(
        "dask: declared argmax",
        "roipool/dask/_library.py",
        "return pooled, argmax.astype(ARGMAX, copy=False)",
        "return pooled, argmax",
        "an argmax has the type int32 but is declared as int64",
        DASK,
    ),
    Fault(
        "dask: chunks of another map",
        "roipool/dask/_library.py",
        "maps = [first, *(each.rechunk({0: first.chunks[0]}) for each in others)]",
        "maps = [first, *others]",
        "the maps of a pyramid keep different chunks, which mixes images",
        DASK,
    ),
    Fault(
        "other arrays: lists come back",
        "roipool/_dlpack.py",
        "originals = {id(memory): by_id[key] for key, memory in handed.items()}",
        "originals: dict[int, Any] = {}",
        "the call returns another array than `out`",
        OTHER,
    ),
    Fault(
        "other arrays: a gradient that is needed",
        "roipool/_dlpack.py",
        'getattr(value, "stop_gradient", True) is False',
        'getattr(value, "stop_gradient", False) is True',
        "Paddle's flag stop_gradient is inverted",
        OTHER,
    ),
    Fault(
        "other arrays: devices",
        "roipool/_dlpack.py",
        "others = [str(each) for each in devices if each != devices[0]]",
        "others = [str(each) for each in devices[2:] if each != devices[0]]",
        "the second array's device is not checked",
        OTHER,
    ),
    Fault(
        "cupy: strides between numbers",
        "roipool/_arrays/_cupy.py",
        "    if address % size or any(stride % size for stride in strides):\n",
        "    if address % size:\n",
        "a row stride that is not a multiple of the element size is accepted",
        CUPY,
    ),
    Fault(
        "cupy: numbers of joined tables",
        "roipool/_arrays/_cupy.py",
        "numbers[begin:end].fill(number)",
        "numbers[begin:end].fill(begin)",
        "boxes given per image get the number of their first box as the image",
        CUPY,
    ),
    Fault(
        "arguments: the last map",
        "roipool/_boxes.py",
        "0 <= checked.min() <= checked.max() < maps:",
        "0 <= checked.min() <= checked.max() <= maps:",
        "`<=` instead of `<`: the level after the last map is accepted",
        ARGUMENTS,
    ),
    Fault(
        "arguments: infinite after rounding",
        "roipool/_arrays/_numpy.py",
        "if array.dtype.itemsize <= dtype.itemsize:",
        "if array.dtype.itemsize:",
        "boxes beyond float32 cause an overflow warning",
        ARGUMENTS,
    ),
    Fault(
        "arguments: one table per image",
        "roipool/_boxes.py",
        "return bool(rois) and all(rank(item) == 1 and len(item) == 0 for item in rois)",
        "return False",
        "a list of empty lists, one per image, is treated as a table",
        ARGUMENTS,
    ),
    Fault(
        "compat: cut batch index",
        "roipool/compat/_conventions.py",
        "numbers, row = _cpu.whole_numbers(checked, images, True)",
        "numbers, row = _cpu.whole_numbers(checked, images, False)",
        "a batch index with a fraction is refused instead of truncated",
        COMPAT,
    ),
    Fault(
        "compat: largest picture",
        "roipool/compat/_conventions.py",
        "return max(height for height, _ in sides), max(",
        "return min(height for height, _ in sides), max(",
        "scales are derived from the smallest instead of the largest picture",
        COMPAT,
    ),
]
