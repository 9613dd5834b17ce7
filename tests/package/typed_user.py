# pyright: strict, reportUnnecessaryTypeIgnoreComment=true
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnusedFunction=false
"""A user's program, for type checkers: nothing here is run.

`mypy --strict` and `pyright` accept all of it, and find the mistakes: a comment that ignores an
error is itself an error where there is none. The session `types` of noxfile.py runs both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, assert_type

import dask.array as da
import jax
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import roipool
import roipool.dask
import roipool.jax
import roipool.torch
from roipool.compat import mmcv, onnx
from roipool.torch import nn

Integers = NDArray[np.signedinteger[Any]]
Floats = NDArray[np.floating[Any]]


class CudaArray:
    """A type checker's view of an array of CuPy or another GPU library."""

    @property
    def __cuda_array_interface__(self) -> Mapping[str, Any]:
        raise NotImplementedError


class DLPackArray:
    """An array of an unknown library."""

    def __dlpack__(self, *, stream: int | None = None) -> object:
        raise NotImplementedError


# ---- Arrays of each library give arrays of that library


def numpy_arrays(
    maps: NDArray[np.float32],
    rois: NDArray[np.float64],
    images: Integers,
    picture: NDArray[np.uint8],
) -> None:
    pooled = roipool.roi_align(maps, rois, 7, 1 / 16, mode="max", layout="NHWC")
    assert_type(pooled, NDArray[np.float32])
    assert_type(roipool.roi_align(maps, rois.tolist(), (7, 7)), NDArray[np.float32])
    assert_type(roipool.roi_align(maps, [rois, rois], [7, 7], out=pooled), NDArray[np.float32])
    assert_type(roipool.roi_pool(maps, [[0, 1, 1, 3, 3]], 7), NDArray[np.float32])
    both = roipool.roi_pool(maps, rois, 7, return_argmax=True)
    assert_type(both, tuple[NDArray[np.float32], Integers])
    gradient = roipool.roi_pool_backward(pooled, both[1], rois, maps.shape)
    assert_type(gradient, NDArray[np.float32])
    assert_type(roipool.crop_and_resize(maps, rois, images, 7), NDArray[np.float32])
    assert_type(roipool.crop_and_resize(picture, rois, images, 7, out=pooled), NDArray[np.float32])
    assert_type(roipool.roi_align(picture, rois, 7), NDArray[np.float32])
    of_picture = roipool.roi_pool(picture, rois, 7, return_argmax=True)
    assert_type(of_picture, tuple[NDArray[np.float32], Integers])
    assert_type(roipool.roi_align_backward_rois(pooled, maps, rois), Floats)
    assert_type(roipool.crop_and_resize_backward_boxes(pooled, maps, rois, images), Floats)
    assert_type(roipool.assign_levels(rois, 2, 5), NDArray[np.int64])
    assert_type(roipool.assign_levels([[0, 0, 9, 9]], 2, 5), NDArray[np.int64])
    pyramid = roipool.multilevel_roi_align([maps, maps], rois, 7, (1 / 4, 1 / 8))
    assert_type(pyramid, NDArray[np.float32])
    shapes = [maps.shape, maps.shape]
    gradients = roipool.multilevel_roi_align_backward(pyramid, rois, shapes, (1 / 4, 1 / 8))
    assert_type(gradients, list[NDArray[np.float32]])


def tensors(maps: Tensor, rois: Tensor, images: Tensor, parts: Sequence[Tensor]) -> None:
    assert_type(roipool.roi_align(maps, rois, 7), Tensor)
    assert_type(roipool.roi_align(maps, parts, 7, (1 / 8, 1 / 16)), Tensor)
    assert_type(roipool.roi_align(maps, rois, 7, batch_indices=images), Tensor)
    assert_type(roipool.roi_pool(maps, rois, 7, return_argmax=True), tuple[Tensor, Tensor])
    assert_type(roipool.multilevel_roi_align(parts, rois, 7, (1 / 4, 1 / 8)), Tensor)
    assert_type(roipool.crop_and_resize_backward_boxes(maps, maps, rois, images), Tensor)
    assert_type(roipool.assign_levels(rois, 2, 5), Tensor)
    assert_type(roipool.crop_and_resize(maps, rois, images, 7, dtype=torch.float16), Tensor)
    assert_type(roipool.compat.torchvision.roi_align(maps, rois, 7), Tensor)
    assert_type(roipool.compat.tensorflow.crop_and_resize(maps, rois, images, 7), Tensor)
    with roipool.torch.override_torchvision():
        pass


def modules(maps: Tensor, rois: Tensor, images: Tensor, parts: Sequence[Tensor]) -> None:
    align = nn.RoIAlign(7, 1 / 16, sampling_ratio=2, pool_mode="max", aligned=False)
    assert_type(align(maps, rois), Tensor)
    assert_type(align(maps, parts), Tensor)
    assert_type(align.forward(maps, rois=rois), Tensor)
    assert_type(align.spatial_scale, float | Sequence[float])
    assert_type(nn.RoIPool((7, 7), 1 / 16)(maps, rois), Tensor)
    assert_type(nn.RoIAlignRotated(7, 1 / 16, 2, clockwise=True)(maps, rois), Tensor)
    assert_type(nn.PSRoIPool(7, 1 / 16)(maps, parts), Tensor)
    assert_type(nn.PSRoIAlign(7, 1 / 16, 2, group_size=7)(maps, rois), Tensor)
    assert_type(nn.DeformRoIPool(7, 1 / 16)(maps, rois, offset=maps), Tensor)
    assert_type(nn.DeformRoIPoolPack(7, 256, spatial_scale=1 / 16)(maps, rois), Tensor)
    assert_type(nn.ModulatedDeformRoIPoolPack(7, 256)(maps, parts), Tensor)
    assert_type(nn.PrRoIPool(7, 1 / 16)(maps, parts), Tensor)
    assert_type(nn.PrRoIPool2D(7, 7, 1 / 16)(maps, rois), Tensor)
    assert_type(nn.CropAndResize(7, method="nearest")(maps, rois, images), Tensor)
    levels = nn.MultiScaleRoIAlign(["fine", "coarse"], 7, 2)
    assert_type(levels({"fine": maps, "coarse": maps}, parts, [(480, 640)]), Tensor)
    assert_type(levels.scales, list[float] | None)


def jax_arrays(maps: jax.Array, rois: jax.Array, boxes: NDArray[np.float32]) -> None:
    assert_type(roipool.roi_align(maps, rois, 7), jax.Array)
    assert_type(roipool.precise_roi_pool(maps, boxes, 7), jax.Array)
    assert_type(roipool.roi_align_backward_rois(maps, maps, rois), jax.Array)
    assert_type(roipool.roi_align_rotated(maps, rois, 7, angle_unit="degrees"), jax.Array)
    assert_type(roipool.roi_align(maps, [[0, 1, 1, 3, 3]], 7), jax.Array)
    assert_type(roipool.jax.transport(), str)


def other_arrays(gpu: CudaArray, lazy: da.Array, other: DLPackArray) -> None:
    assert_type(roipool.roi_align(gpu, gpu, 7), CudaArray)
    assert_type(roipool.roi_pool(gpu, gpu, 7, return_argmax=True), tuple[CudaArray, CudaArray])
    assert_type(roipool.roi_align(lazy, [[0, 1, 1, 3, 3]], 7), da.Array)
    assert_type(roipool.multilevel_roi_align([lazy], [[0, 1, 1, 3, 3]], 7, [1 / 4]), da.Array)
    assert_type(roipool.roi_average_pool(other, other, 7), DLPackArray)


def lazy_arrays(maps: da.Array, rois: NDArray[np.float32], images: list[int]) -> None:
    assert_type(roipool.roi_align(maps, rois, 7, mode="max"), da.Array)
    both = roipool.roi_pool(maps, [rois, rois], 7, return_argmax=True)
    assert_type(both, tuple[da.Array, da.Array])
    assert_type(roipool.crop_and_resize(maps, rois, images, 7), da.Array)
    assert_type(roipool.dask.chunk_order(maps, images), NDArray[np.int64])


# ---- Mistakes


def wrong_words(maps: NDArray[np.float32], tensor: Tensor, array: jax.Array) -> None:
    roipool.roi_align(maps, maps, 7, mode="mean")  # type: ignore[call-overload]
    roipool.roi_align(maps, maps, 7, layout="CHWN")  # type: ignore[call-overload]
    roipool.roi_average_pool(maps, maps, 7, layout="CHWN")  # type: ignore[arg-type]
    roipool.crop_and_resize(maps, maps, maps, 7, method="cubic")  # type: ignore[call-overload]
    roipool.roi_align_rotated(maps, maps, 7, angle_unit="turns")  # type: ignore[arg-type]
    roipool.crop_and_resize(array, array, array, 7, method="")  # type: ignore[call-overload]
    mmcv.roi_align(maps, maps, 7, pool_mode="mean")  # type: ignore[arg-type]
    onnx.RoiAlign(maps, maps, maps, mode="mean")  # type: ignore[arg-type]
    roipool.compat.mmvc.roi_align(maps, maps, 7)  # type: ignore[attr-defined]
    roipool.referenc.roi_align(maps, maps, 7)  # type: ignore[attr-defined]


def wrong_arrays(maps: NDArray[np.float32], tensor: Tensor, array: jax.Array) -> None:
    roipool.roi_align([[1.0]], maps, 7)  # type: ignore[call-overload]
    roipool.roi_average_pool("maps", maps, 7)  # type: ignore[type-var]
    roipool.roi_average_pool(maps, None, 7)  # type: ignore[arg-type]
    roipool.multilevel_roi_align(maps, maps, 7, [1.0])  # type: ignore[arg-type]


def wrong_modules(maps: Tensor, rois: Tensor, array: NDArray[np.float32]) -> None:
    nn.RoIAlign(7, pool_mode="mean")  # type: ignore[arg-type]
    nn.RoIAlign(7)(maps, array)  # type: ignore[arg-type]
    nn.RoIPool("7")  # type: ignore[arg-type]
    nn.PrRoIPool2D((7, 7), 7, 1.0)  # type: ignore[arg-type]
    nn.CropAndResize(7, method="cubic")  # type: ignore[arg-type]
    nn.MultiScaleRoIAlign(["fine"], 7, 2)(maps, [rois], [(9, 9)])  # type: ignore[arg-type]


def wrong_lazy_arrays(maps: da.Array) -> None:
    roipool.dask.roi_align(maps, [[0, 1, 1, 3, 3]], 7)  # type: ignore[attr-defined]
    roipool.roi_align(maps, [[0, 1, 1, 3, 3]], 7, keep_ordr=False)  # type: ignore[call-overload]


def wrong_options(maps: NDArray[np.float32]) -> None:
    roipool.roi_align(maps, maps, "7")  # type: ignore[arg-type]
    roipool.roi_align(maps, maps, 7, alined=True)  # type: ignore[call-overload]
    roipool.roi_align(maps, maps)  # type: ignore[call-overload]
    roipool.roi_average_pool(maps, maps, 7, 1.0, 2)  # type: ignore[call-arg]
    roipool.roi_average_pool(maps, maps, 7.5)  # type: ignore[arg-type]
