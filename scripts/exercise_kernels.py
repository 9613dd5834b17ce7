"""Launches every CUDA kernel with every definition on small inputs, for scripts/gpu.sh.

Each array gets memory of its own, rather than a piece of CuPy's pool, so that an access beyond an
array's end is seen.
"""

from __future__ import annotations

import itertools
from typing import Any

import cupy
import numpy as np

from roipool.compat import caffe, mmcv, mxnet
from roipool.verification import groups
from roipool.verification.trials import trials


def caffe_align(maps: Any, rois: Any, grad: Any) -> None:
    """Launch what no program's answers are shipped for: the older ROI align for Caffe."""
    _, x, y = caffe.roi_align(maps, rois, 3, 2, 0.5)
    for exact in (False, True):
        caffe.roi_align_backward(grad, x, y, rois, maps.shape, 3, 2, 0.5, exact_gradient=exact)


def caffe_pool(maps: Any, rois: Any, grad: Any) -> None:
    """Launch Caffe's backward, which gathers."""
    _, argmax = caffe.roi_pooling(maps, rois, 3, 2, 0.5)
    caffe.roi_pooling_backward(grad, argmax, rois, maps.shape, 3, 2, 0.5)


def mxnet_align(maps: Any, rois: Any, grad: Any) -> None:
    """Launch the older ROI align for MXNet, whose backward gathers too."""
    _, x, y = mxnet.ROIAlign(maps, rois, (3, 2), 0.5, return_argmax=True)
    mxnet.ROIAlign_backward(grad, x, y, rois, maps.shape, 0.5)


def mmcv_pool(maps: Any, rois: Any, grad: Any) -> None:
    """Launch mmcv's RoIPool, which rounds the edges of bins only."""
    _, argmax = mmcv.roi_pool(maps, rois, (3, 2), 0.5, return_argmax=True)
    mmcv.roi_pool_backward(grad, rois, argmax, maps.shape, 0.5)


LAYERS = (caffe_align, caffe_pool, mxnet_align, mmcv_pool)


def main() -> None:
    """Run every operation in every type and layout, and every compat system."""
    cupy.cuda.set_allocator(None)
    device = groups.device("cuda")
    trial = next(iter(trials(np.random.default_rng(0))))
    for dtype, layout in itertools.product(device.types.values(), groups.LAYOUTS):
        groups.compute(device, trial, dtype, layout)
    for layer in LAYERS:
        layer(*map(cupy.asarray, (trial.maps[:, :2], trial.rois, trial.grad[:, :2])))
    problems = [found.problem for _, found in groups.against_programs(device)]
    if any(problems):
        raise SystemExit("wrong numbers: run roipool verify")
    cupy.cuda.Device().synchronize()
    print("every kernel was launched")


if __name__ == "__main__":
    main()
