"""Calls under JAX's settings: no 64-bit types, strict promotion, no jit; and too wide numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from _support.cases import ALL_CASES, CASES, SHAPE, OperationCase, PyramidCase, maps
from _support.compare import assert_same_bits

import roipool

X = np.asarray(maps(), np.float32)
BOXES = np.array([[1.0, 1.0, 4.0, 4.0], [2.0, 2.0, 5.0, 5.0]])
ARGMAX = np.zeros((1, 3, 1, 1), np.int64)
ONE = np.ones((1, 3, 1, 1), np.float32)


def indexed(indices: Any) -> Callable[[Any], Any]:
    return lambda to: roipool.roi_align(to(X), BOXES, 2, batch_indices=indices)


def in_table(index: Any, dtype: Any) -> Callable[[Any], Any]:
    table = np.array([[index, 1, 1, 4, 4]], dtype)
    return lambda to: roipool.roi_align(to(X), table, 2)


def on_levels(levels: Any) -> Callable[[Any], Any]:
    rois = [[0, 1.0, 1, 4, 4]]
    return lambda to: roipool.multilevel_roi_align(
        [to(X), to(X)], rois, 2, (1.0, 0.5), levels=levels
    )


def by_argmax(number: Any, dtype: Any = np.int64) -> Callable[[Any], Any]:
    argmax = np.full_like(ARGMAX, number, dtype=dtype)
    rois = np.array([[0, 1, 1, 4, 4]], np.float32)
    return lambda to: roipool.roi_pool_backward(to(ONE), argmax, rois, SHAPE)


def of_samples(number: Any) -> Callable[[Any], Any]:
    argmax = np.full_like(ARGMAX, number)
    rois = np.array([[0, 1, 1, 4, 4]], np.float32)
    return lambda to: roipool.roi_align_backward(
        to(ONE), rois, SHAPE, sampling_ratio=2, mode="max", argmax=argmax
    )


# Numbers that are others in 32 bits.
TOO_WIDE = {
    "index 2**32 + 1": indexed(np.array([0, 2**32 + 1])),
    "index 2**32 + 1, a list": indexed([0, 2**32 + 1]),
    "index 2**64 - 2**32": indexed(np.array([0, 2**64 - 2**32], np.uint64)),
    "NaN cast to int64": indexed(np.array([0, -(2**63)])),
    "index 1 + 1e-9": indexed(np.array([0, 1 + 1e-9])),
    "index 1 + 1e-9, a list": indexed([0, 1 + 1e-9]),
    "index in a table of int64": in_table(2**32 + 1, np.int64),
    "index in a table of float64": in_table(1 + 1e-9, np.float64),
    "level 2**32 + 1": on_levels(np.array([2**32 + 1])),
    "level 2**32 + 1, a list": on_levels([2**32 + 1]),
    "level -2**32": on_levels(np.array([-(2**32)])),
    "argmax 2**32 + 3": by_argmax(2**32 + 3),
    "argmax 2**63 of uint64": by_argmax(2**63, np.uint64),
    "argmax -2**32": by_argmax(-(2**32)),
    "argmax of samples 2**32 + 1": of_samples(2**32 + 1),
}


@pytest.mark.parametrize("name", TOO_WIDE)
@pytest.mark.parametrize("x64", [False, True])
def test_numbers_are_checked_before_they_are_cut(name: str, x64: bool) -> None:
    with pytest.raises(ValueError) as expected:  # noqa: PT011 - whatever NumPy's call says
        TOO_WIDE[name](np.asarray)
    argument = str(expected.value).split()[0].partition("[")[0]
    with jax.enable_x64(x64), pytest.raises((ValueError, jax.errors.JaxRuntimeError)) as found:
        jax.block_until_ready(TOO_WIDE[name](jnp.asarray))
    assert argument in str(found.value)


@pytest.mark.parametrize("case", ALL_CASES, ids=str)
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8, np.float16, np.float64])
def test_boxes_of_every_type_are_rounded_once(case: OperationCase, dtype: Any) -> None:
    boxes = (case.boxes() * (1 if case.op.boxes == "boxes" else 3)).clip(0).astype(dtype)
    expected = case.pool(X, boxes, case.indices())
    for given in (boxes, boxes.tolist()) if dtype == np.float64 else (boxes,):
        found = case.pool(jnp.asarray(X), np.asarray(given), case.indices())
        assert_same_bits(np.asarray(found), expected)


def test_numpy_arrays_in_another_order_of_bytes() -> None:
    rois = np.array([[1, 0.5, 1, 4, 5]])
    swapped = rois.astype(rois.dtype.newbyteorder())
    expected, features = roipool.roi_align(X, rois, 2), jnp.asarray(X)
    assert_same_bits(np.asarray(roipool.roi_align(features, swapped, 2)), expected)
    compiled = jax.jit(lambda x: roipool.roi_align(x, swapped, 2))
    assert_same_bits(np.asarray(compiled(features)), expected)


def test_masks_are_refused() -> None:
    """JAX would lose them, also in rows of lists."""
    rois = np.ma.array([[0, 1.0, 1, 5, 5]])
    for boxes in (rois, [*rois]):
        with pytest.raises(TypeError, match=r"^roi_align: rois must be without a mask"):
            roipool.roi_align(jnp.asarray(X), boxes, 2)
    with pytest.raises(TypeError, match=r"^roi_align: features must be without a mask"):
        roipool.roi_align(np.ma.array(X), jnp.asarray(np.asarray(rois)), 2)


def test_an_empty_list_has_no_boxes() -> None:
    assert roipool.roi_align(jnp.asarray(X), [], 2).shape == (0, X.shape[1], 2, 2)
    assert roipool.roi_align(jnp.asarray(X), [], 2, batch_indices=[]).shape[0] == 0
    assert roipool.crop_and_resize(jnp.asarray(X), [], [], 2).shape[0] == 0


@pytest.mark.parametrize("wrong", [2**32 + 1, 2**32 - 2**31, -(2**32)])
def test_traced_numbers_are_not_cut(wrong: int) -> None:
    """An index beyond 32 bits is that of no image, and a level that of no map."""
    boxes, pyramid = jnp.asarray([[1.0, 1, 4, 4]]), [jnp.asarray(X), jnp.asarray(X)]

    def by_index(numbers: Any) -> Any:
        return roipool.roi_align(pyramid[0], boxes, 2, batch_indices=numbers)

    def by_level(numbers: Any) -> Any:
        images = jnp.zeros(1, int)
        return roipool.multilevel_roi_align(
            pyramid, boxes, 2, (1.0, 0.5), levels=numbers, batch_indices=images
        )

    with jax.enable_x64(True):
        for pool in map(jax.jit, (by_index, by_level)):
            assert not pool(jnp.asarray([wrong])).any()
            assert pool(jnp.asarray([1])).any()


@pytest.mark.parametrize("dtype", [jnp.int8, jnp.uint8, jnp.float16])
def test_types_of_indices_that_do_not_hold_the_number_of_images(dtype: Any) -> None:
    features = jnp.arange(70_000, dtype=jnp.float32).reshape(-1, 1, 1, 1)
    boxes, indices = jnp.array([[0.0, 0, 1, 1]] * 2), jnp.array([3, 100], dtype)
    pool = jax.jit(lambda numbers: roipool.roi_pool(features, boxes, 1, batch_indices=numbers))
    assert pool(indices).ravel().tolist() == [3, 100]


def test_coordinates_beyond_32_bits_stay_what_they_are() -> None:
    rois = np.array([[0, 0, 0, 2**32 + 4, 5]])
    found = roipool.roi_align(jnp.asarray(X), rois, 2, sampling_ratio=2)
    assert_same_bits(np.asarray(found), roipool.roi_align(X, rois, 2, sampling_ratio=2))


def everything(case: OperationCase, to: Any) -> list[Any]:
    features, boxes, indices = to(X), to(np.asarray(case.boxes(), np.float32)), to(case.indices())
    if case.variant.has_argmax:
        pooled, argmax = case.pool(features, boxes, indices, return_argmax=True)
        return [pooled, argmax, case.gradient(pooled, argmax, boxes, indices, SHAPE)]
    pooled = case.pool(features, boxes, indices)
    gradient = case.gradient(pooled, None, boxes, indices, SHAPE)
    found = [pooled, *(gradient if isinstance(gradient, list) else [gradient])]
    return [*found, *([case.box_gradient(pooled, features, boxes, indices)] if case.moves else [])]


def test_float64_cannot_be_chosen_without_64_bit_types() -> None:
    maps_of_bytes = jnp.zeros((1, 3, 4, 4), "uint8")
    with pytest.raises(TypeError, match=r"dtype must not be float64 with"):
        roipool.roi_align(maps_of_bytes, [[0, 0, 0, 2, 2]], 2, dtype="float64")


@pytest.mark.parametrize("case", ALL_CASES, ids=str)
@pytest.mark.parametrize("setting", ["strict promotion", "no jit"])
def test_settings_change_no_bit(case: OperationCase, setting: str) -> None:
    expected = everything(case, np.asarray)
    strict = jax.numpy_dtype_promotion("strict" if setting == "strict promotion" else "standard")
    with strict, jax.disable_jit(setting == "no jit"):
        found = everything(case, jnp.asarray)
        if not isinstance(case, PyramidCase) and case.is_linear:
            by_maps = jax.grad(
                lambda x: case.pool(x, case.boxes().astype("float32"), case.indices()).sum()
            )(jnp.asarray(X))
            assert by_maps.shape == SHAPE
    for got, wanted in zip(found, expected, strict=True):
        assert_same_bits(np.asarray(got), wanted)


@pytest.mark.parametrize("setting", ["strict", "standard"])
def test_levels_by_default_under_strict_promotion(setting: Any) -> None:
    scales = (1 / 4, 1 / 8)
    rois = np.array([[0, 1, 1, 20, 30], [1, 2, 2, 500, 500]], np.float32)
    expected = roipool.multilevel_roi_align([X, X], rois, 2, scales)
    with jax.numpy_dtype_promotion(setting):
        found = roipool.multilevel_roi_align(
            [jnp.asarray(X), jnp.asarray(X)], jnp.asarray(rois), 2, scales
        )
        levels = roipool.assign_levels(jnp.asarray(rois), 2, 3)
    assert_same_bits(np.asarray(found), expected)
    assert np.array_equal(levels, roipool.assign_levels(rois, 2, 3))


@pytest.mark.parametrize("argument", ["features", "rois", "batch_indices"])
def test_keys_are_no_numbers(argument: str) -> None:
    given = {"features": jnp.asarray(X), "rois": BOXES, "batch_indices": np.array([0, 1])}
    given[argument] = jax.random.split(jax.random.key(0), 2)
    with pytest.raises(TypeError, match=f"{argument} must .* got"):
        roipool.roi_align(**given, output_size=2)


@pytest.mark.parametrize("shape", [(1, 2, 0, 3), (1, 2, 3, 0)])
def test_derivatives_of_maps_without_cells(shape: tuple[int, ...]) -> None:
    features, rois = jnp.zeros(shape), jnp.asarray([[0, 0.0, 0, 2, 2]])

    def pool(x: Any) -> Any:
        return roipool.roi_pool(x, rois, 2)

    values, change = jax.jvp(pool, (features,), (features,))
    assert not change.any()
    assert values.shape == change.shape == (1, 2, 2, 2)
    assert not jax.linearize(pool, features)[1](features).any()
    second = jax.jvp(jax.grad(lambda x: pool(x).sum()), (features,), (features,))
    assert second[1].shape == shape


@pytest.mark.parametrize("case", CASES, ids=str)
def test_an_index_of_no_image_pools_nothing_in_a_batch_of_calls(case: OperationCase) -> None:
    """For calls with separate maps; not the last image of the previous call."""
    features = jnp.asarray(maps((3, *SHAPE)), jnp.float32)
    boxes = jnp.asarray(case.boxes(2), jnp.float32)
    indices = jnp.asarray([[0, 1], [-1, 1], [1, SHAPE[0]]])

    def pool(x: Any, numbers: Any) -> Any:
        return case.pool(x, boxes, numbers)

    found = jax.vmap(pool)(features, indices)
    gradient = jax.vmap(jax.grad(lambda x, n: pool(x, n).sum()))(features, indices)
    for call in range(3):
        known = [row for row in range(2) if 0 <= int(indices[call, row]) < SHAPE[0]]
        alone = case.pool(features[call], boxes[np.array(known)], indices[call][np.array(known)])
        assert_same_bits(np.asarray(found[call][np.array(known)]), np.asarray(alone))
        fill = case.options().get(case.op.filling or "", 0)
        others = [row for row in range(2) if row not in known]
        assert (np.asarray(found[call])[others] == fill).all()
        expected = jax.grad(lambda x, n, kept: case.pool(x, boxes[kept], n[kept]).sum())(
            features[call], indices[call], np.array(known)
        )
        np.testing.assert_allclose(gradient[call], expected, rtol=1e-6)
