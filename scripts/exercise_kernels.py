"""Launches every CUDA kernel with every definition on small inputs, for scripts/gpu.sh.

    python scripts/exercise_kernels.py [--processes N]

Each array is allocated separately, not in CuPy's pool, so that accesses beyond its end are
detected. Several processes compile for CuPy's cache on disk, which a second run then reads.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
from dataclasses import replace
from typing import Any

import cupy
import numpy as np

from roipool.compat import caffe, mmcv, mxnet
from roipool.systems.case import LAYOUTS
from roipool.systems.core import VARIANTS
from roipool.verification import groups
from roipool.verification.call import run
from roipool.verification.catalogue import ENTRIES
from roipool.verification.device import device


def caffe_align(maps: Any, rois: Any, grad: Any) -> None:
    """Launch the older ROI align for Caffe, for which there are no goldens."""
    _, x, y = caffe.roi_align(maps, rois, 3, 2, 0.5)
    for exact in (False, True):
        caffe.roi_align_backward(grad, x, y, rois, maps.shape, 3, 2, 0.5, exact_gradient=exact)


def caffe_pool(maps: Any, rois: Any, grad: Any) -> None:
    """Launch Caffe's gathering backward."""
    _, argmax = caffe.roi_pooling(maps, rois, 3, 2, 0.5)
    caffe.roi_pooling_backward(grad, argmax, rois, maps.shape, 3, 2, 0.5)


def mxnet_align(maps: Any, rois: Any, grad: Any) -> None:
    """Launch the older ROI align for MXNet, with its gathering backward."""
    _, x, y = mxnet.ROIAlign(maps, rois, (3, 2), 0.5, return_argmax=True)
    mxnet.ROIAlign_backward(grad, x, y, rois, maps.shape, 0.5)


def mmcv_pool(maps: Any, rois: Any, grad: Any) -> None:
    """Launch mmcv's RoIPool, which rounds only the edges of bins."""
    _, argmax = mmcv.roi_pool(maps, rois, (3, 2), 0.5, return_argmax=True)
    mmcv.roi_pool_backward(grad, rois, argmax, maps.shape, 0.5)


SEVERAL = ("half outside", "17 channels", "33 channels")  # entries of the catalogue
LAYERS = (caffe_align, caffe_pool, mxnet_align, mmcv_pool)


def launch_operations(dtype: str, layout: str) -> None:
    """Launch the kernels of every operation for one type and layout."""
    cupy.cuda.set_allocator(None)
    gpu = device("cuda")
    for name, entry in itertools.product(VARIANTS, ENTRIES):
        if entry.name in SEVERAL:
            for _, case in entry.cases(name):
                run(replace(case, dtype=dtype, layout=layout), gpu.library)
    cupy.cuda.Device().synchronize()


def launch_systems() -> None:
    """Launch the kernels of the systems of `compat`."""
    cupy.cuda.set_allocator(None)
    maps, rois = np.zeros((2, 2, 9, 11)), np.array([[0, 1, 1, 9, 7], [1, 2, 2, 14, 12.0]])
    for layer in LAYERS:
        layer(*map(cupy.asarray, (maps, rois, np.ones((2, 2, 3, 2)))))
    if groups.against_programs(device("cuda"), "released programs").problems:
        raise SystemExit("wrong numbers: run roipool verify")
    cupy.cuda.Device().synchronize()


def main() -> None:
    """Run every operation in every type and layout, and every compat system."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--processes", type=int, default=1, metavar="N")
    processes = parser.parse_args().processes
    forms = list(itertools.product(device("cuda").types, LAYOUTS))
    if processes > 1:
        # A process of CUDA's cannot be forked.
        with multiprocessing.get_context("spawn").Pool(processes) as pool:
            pending = pool.starmap_async(launch_operations, forms, chunksize=1)
            launch_systems()
            pending.get()
    else:
        for form in forms:
            launch_operations(*form)
        launch_systems()
    print("every kernel was launched")


if __name__ == "__main__":
    main()
