"""Deformable position-sensitive systems against what their releases answered."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from _support.backends import Backend, thorough_on_the_emulator
from _support.golden_data import Arrays, recorded

from roipool.compat import megengine, mxnet, openvino

EPS = np.finfo(np.float32).eps


def assert_near(backend: Backend, found: Any, expected: Any, terms: float) -> int:
    """Compare, and count the numbers that are not 0; `terms` bounds the sum of absolute terms."""
    error = np.abs(backend.to_host(found) - expected).max(initial=0)
    assert error <= 4 * EPS * terms
    return int(np.count_nonzero(expected))


def mxnet_options(case: Arrays) -> dict[str, Any]:
    names = "output_dim", "group_size", "part_size", "sample_per_part"
    numbers = {name: int(case[name]) for name in names}
    shares = {name: float(case[name]) for name in ("spatial_scale", "trans_std")}
    return {**numbers, **shares, "pooled_size": int(case["pooled_size"][0])}


@thorough_on_the_emulator
def test_mxnet_answers_the_same(backend: Backend) -> None:
    values = 0
    for case in recorded("mxnet_deformable"):
        options, none = mxnet_options(case), {"no_trans": "trans" not in case}
        data, rois, grad = (backend.to_device(case[name]) for name in ("data", "rois", "out_grad"))
        trans = backend.to_device(case["trans"]) if "trans" in case else None
        largest = float(np.abs(case["data"]).max())
        pooled = mxnet.contrib_DeformablePSROIPooling(data, rois, trans, **options, **none)
        values += assert_near(backend, pooled, case["pooled"], largest)
        total = float(np.abs(case["out_grad"]).sum())
        gradient = mxnet.contrib_DeformablePSROIPooling_backward(
            grad, rois, trans, data.shape, **options, **none
        )
        values += assert_near(backend, gradient, case["gradient"], total)
        if trans is not None:
            by_trans = mxnet.contrib_DeformablePSROIPooling_backward_trans(
                grad, data, rois, trans, **options
            )
            values += assert_near(backend, by_trans, case["trans_gradient"], total * largest)
    assert values > 2500


@thorough_on_the_emulator
def test_megengine_answers_the_same(backend: Backend) -> None:
    values = 0
    for case in recorded("megengine_deformable"):
        rows, columns = case["size"].tolist()
        samples, parts = int(case["sample_per_part"]), int(case["part_size"])
        options: Any = (
            parts,
            rows,
            columns,
            samples,
            *(float(case[name]) for name in ("spatial_scale", "trans_std")),
        )
        inp, rois, trans, grad = (
            backend.to_device(case[name]) for name in ("inp", "rois", "trans", "out_grad")
        )
        largest = float(np.abs(case["inp"]).max())
        total = float(np.abs(case["out_grad"]).sum())
        pooled = megengine.deformable_psroi_pooling(inp, rois, trans, False, *options)
        values += assert_near(backend, pooled, case["pooled"], largest)
        gradient = megengine.deformable_psroi_pooling_backward(
            grad, rois, trans, inp.shape, False, *options
        )
        values += assert_near(backend, gradient, case["gradient"], total)
        by_trans = megengine.deformable_psroi_pooling_backward_trans(
            grad, inp, rois, trans, *options
        )
        values += assert_near(backend, by_trans, case["trans_gradient"], total * largest)
    assert values > 3000


@thorough_on_the_emulator
def test_openvino_answers_the_same(backend: Backend) -> None:
    values = 0
    for case in recorded("openvino_deformable"):
        channels, scale, group, across, down, deviation, part = case["options"].tolist()
        offsets = backend.to_device(case["offsets"]) if "offsets" in case else None
        pooled = openvino.DeformablePSROIPooling(
            backend.to_device(case["maps"]),
            backend.to_device(case["rois"]),
            offsets,
            output_dim=int(channels),
            spatial_scale=scale,
            group_size=int(group),
            spatial_bins_x=int(across),
            spatial_bins_y=int(down),
            trans_std=deviation,
            part_size=int(part),
        )
        values += assert_near(backend, pooled, case["pooled"], float(np.abs(case["maps"]).max()))
    assert values > 1500


# ---- What the releases were not asked

MAPS = np.random.default_rng(0).normal(size=(1, 1, 60, 60)).astype(np.float32)
ROIS = np.array([[0, 3, 5, 50, 52.0]])


def test_mxnet_finds_parts_in_floats() -> None:
    """Bin 13 of 22 has the offset of part 12 in MXNet."""
    trans = np.zeros((1, 2, 22, 22))
    trans[0, 0, :, 12] = 1
    options: dict[str, Any] = {"spatial_scale": 1.0, "output_dim": 1, "group_size": 1}
    options |= {"pooled_size": 22, "part_size": 22, "trans_std": 0.3}
    moved = mxnet.contrib_DeformablePSROIPooling(MAPS, ROIS, trans, **options)
    still = mxnet.contrib_DeformablePSROIPooling(MAPS, ROIS, 0 * trans, **options)
    differs = (moved != still).any(axis=(0, 1, 2))
    np.testing.assert_array_equal(np.flatnonzero(differs), [12, 13])
    exact, still = (
        openvino.DeformablePSROIPooling(
            np.repeat(MAPS, 484, axis=1),
            ROIS,
            offsets,
            output_dim=1,
            spatial_scale=1.0,
            group_size=22,
            trans_std=0.3,
            part_size=22,
        )
        for offsets in (trans, 0 * trans)
    )
    differs = (exact != still).any(axis=(0, 1, 2))
    np.testing.assert_array_equal(np.flatnonzero(differs), [12])


@pytest.mark.parametrize("part_size", [3, (2, 3)])
def test_part_size_is_that_of_the_offsets(part_size: Any) -> None:
    trans = np.zeros((1, 2, 2, 2))
    with pytest.raises(ValueError, match="part_size must be that of trans, 2 x 2; got"):
        mxnet.contrib_DeformablePSROIPooling(MAPS, ROIS, trans, 1.0, 1, 1, 2, part_size)


def test_offsets_are_missing_only_where_no_bin_moves() -> None:
    none = mxnet.contrib_DeformablePSROIPooling(MAPS, ROIS, None, 1.0, 1, 1, 2, no_trans=True)
    zeros = np.zeros((1, 2, 2, 2))
    still = mxnet.contrib_DeformablePSROIPooling(MAPS, ROIS, zeros, 1.0, 1, 1, 2, trans_std=0.1)
    np.testing.assert_array_equal(none, still)
    with pytest.raises(TypeError, match="trans must be an array unless no_trans is True"):
        mxnet.contrib_DeformablePSROIPooling(MAPS, ROIS, None, 1.0, 1, 1, 2)
    with pytest.raises(ValueError, match="part_size must be pooled_h and pooled_w, 2 and 3"):
        megengine.deformable_psroi_pooling(MAPS, ROIS, None, True, 2, 2, 3, 1, 1.0)
