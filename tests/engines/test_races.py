"""Arrays that another thread changes during a call may spoil its values, never memory.

Each case runs in a process of its own, for a number of calls: what goes wrong is a crash.
"""

from __future__ import annotations

import pytest
from _support.run_python import run_python

SETUP = """
    import threading
    import numpy as np, roipool

    roipool.set_num_threads(2)
    maps = np.ones((2, 1, 200, 200), np.float32)
    boxes = np.ones((2000, 4), np.float32)
    images = np.zeros(2000, np.int64)
    table = np.column_stack([images, boxes]).astype(np.float32)
    large = np.column_stack([images, boxes]) + [0, 0, 0, 190, 190]
    cells = roipool.roi_pool(maps, large, 2, return_argmax=True)[1]
    samples = roipool.roi_align(maps, large, 2, mode="max", return_argmax=True)[1]
    first_cells, first_samples = cells.copy(), samples.copy()
    grad = np.ones_like(cells, np.float32)

    def move():
        boxes[:, 2:] = 190
        boxes[:, 2:] = 1

    def renumber():
        images[:] = 10**6
        images[:] = 1

    def rewrite():
        table[:, 0] = 10**6
        table[:, 3:] = 190
        table[:, 0] = 1
        table[:, 3:] = 1

    def relabel():
        for argmax, first in ((cells, first_cells), (samples, first_samples)):
            argmax[...] = 10**8
            argmax[...] = -(10**8)
            argmax[...] = first

    def change():
        while not stop:
            for changes in {changes}:
                changes()

    def align(**options):
        roipool.roi_align(maps, boxes, 2, batch_indices=images, **options)

    stop = False
    changer = threading.Thread(target=change)
    changer.start()
    try:
        for _ in range({calls}):
            try:
                {call}
            except ValueError:
                pass  # found while the arguments were checked
    finally:
        stop = True
        changer.join()
    print("done")
"""

MOVING = "[move]"
RENUMBERING = "[renumber]"
REWRITING = "[rewrite]"
RELABELLING = "[relabel]"
CASES = {
    "average": (MOVING, "align()"),
    "maximum": (MOVING, 'align(mode="max")'),
    "average backward": (
        MOVING,
        "roipool.roi_align_backward(grad, boxes, maps.shape, batch_indices=images)",
    ),
    "box gradient": (
        MOVING,
        "roipool.roi_align_backward_rois(grad[:99], maps, boxes[:99], batch_indices=images[:99])",
    ),
    "images": (RENUMBERING, "align()"),
    "table": (REWRITING, "roipool.roi_align(maps, table, 2)"),
    "cells": (RELABELLING, "roipool.roi_pool_backward(grad, cells, large, maps.shape)"),
    "samples": (
        RELABELLING,
        'roipool.roi_align_backward(grad, large, maps.shape, mode="max", argmax=samples)',
    ),
}


@pytest.mark.parametrize(("changes", "call"), CASES.values(), ids=CASES)
def test_changes_during_a_call(changes: str, call: str) -> None:
    code = SETUP.format(changes=changes, call=call, calls=6)
    done = run_python(code)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


# The rare effect of a race, forced: the engine gets unchecked values.
UNCHECKED = """
    import itertools
    import numpy as np
    from roipool import _cpu
    from roipool._boxes import Regions
    from roipool._definitions import Definition
    from roipool._request import MaxRules, Pooling

    boxes = np.array([[0, 0, 4, 4]] * 3, np.float32)

    def backward(label, planned, kind, dtype, layout):
        # Box 1 names cell 7, the others name `label`.
        argmax = np.full((3, 16, 2, 2), label, kind)
        argmax[1] = 7
        shape = (1, 16, 6, 5)
        if layout == "NHWC":
            shape, argmax = (1, 6, 5, 16), np.ascontiguousarray(argmax.transpose(0, 2, 3, 1))
        real = np.float64 if dtype is np.float64 else np.float32
        regions = Regions(boxes.astype(real), np.zeros(3, np.int64))
        grad, out = np.ones(argmax.shape, dtype), np.empty(shape, dtype)
        if planned:
            rules = MaxRules(argmax_is_cell=True)
            pooling = Pooling(Definition("roi_pool"), (2, 2), layout, rules=rules)
            _cpu.maximum_backward(grad, argmax, regions, pooling, out)
        else:
            _cpu.unpool(grad, argmax, regions.batch_indices, layout, out)
        return float(out.sum())

    types = list(itertools.product(
        (np.int32, np.int64), (np.float16, np.float64), ("NCHW", "NHWC")
    ))
"""


def test_cells_beyond_the_map_are_left_out() -> None:
    code = """
    for label in (30, 2**31 - 1, -2, -(2**31)):
        for each in types:
            # Any bin of box 1 may name cell 7; but only two of the four hold it.
            assert backward(label, False, *each) == 16 * 4, (label, each)
            assert backward(label, True, *each) == 16 * 2, (label, each)
    for label in (2**31, 2**62, -(2**63)):
        assert backward(label, False, np.int64, np.float32, "NCHW") == 16 * 4
    print("done")
"""
    done = run_python(UNCHECKED + code)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
