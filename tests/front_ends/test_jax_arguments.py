"""Arguments specific to JAX: traced values, several devices, arrays of other libraries."""

from __future__ import annotations

import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from _support.cases import CASES, SIZE, OperationCase, maps
from _support.compare import assert_same_bits
from _support.run_python import run_python

import roipool

ALIGN = next(case for case in CASES if case.op.forward == "roi_align")
FEATURES = jnp.asarray(maps(), jnp.float32)
ROIS = jnp.asarray([[0, 1.0, 1.0, 4.0, 4.0], [1, 2.0, 2.0, 5.0, 5.0]])
BOXES, INDICES = ROIS[:, 1:], ROIS[:, 0].astype(jnp.int32)
POOLED = jnp.ones((2, 3, 2, 2))


def pool(features: Any = FEATURES, rois: Any = ROIS, size: Any = 2, **more: Any) -> Any:
    return roipool.roi_align(features, rois, size, **more)


@pytest.mark.parametrize("wrong", [2.0, -1.0, 0.5, float("nan")])
def test_values_are_checked_where_they_are_known(wrong: float) -> None:
    """In compiled calls, boxes of no image pool to nothing and have no gradient."""
    table = ROIS.at[1, 0].set(wrong)
    with pytest.raises(ValueError, match=r"roi_align: rois\[1, 0\] is .*batch indices must be"):
        pool(rois=table)
    compiled = jax.jit(pool)
    assert not compiled(FEATURES, table)[1].any()
    assert_same_bits(np.asarray(compiled(FEATURES, table)[0]), np.asarray(pool()[0]))
    gradient = jax.jit(jax.grad(lambda x, r: pool(x, r).sum()))
    expected = gradient(FEATURES, ROIS[:1])
    assert_same_bits(np.asarray(gradient(FEATURES, table)), np.asarray(expected))
    slopes = jax.jit(jax.grad(lambda r: (pool(rois=r) ** 2).sum()))(table)
    assert slopes[0].any()
    assert not slopes[1].any()


@pytest.mark.parametrize("wrong", [72, 2**31 - 1, -2])
def test_an_argmax_beyond_the_map(wrong: int) -> None:
    argmax = jnp.zeros(POOLED.shape, jnp.int32).at[0, 0, 0, 0].set(wrong)

    def backward(argmax: Any) -> Any:
        return roipool.roi_pool_backward(POOLED, argmax, ROIS, (2, 3, 8, 9))

    with pytest.raises(ValueError, match="roi_pool_backward: argmax must be from -1 to 71"):
        backward(argmax)
    expected = backward(jnp.where(argmax == wrong, -1, argmax))
    assert_same_bits(np.asarray(jax.jit(backward)(argmax)), np.asarray(expected))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "uint16", "uint32", "int64", "uint64"])
def test_an_argmax_of_any_integers(dtype: str) -> None:
    """For samples and cells, the gradient equals that of an int32 argmax."""
    with jax.enable_x64(True):
        pooled, samples = pool(mode="max", sampling_ratio=2, return_argmax=True)
        values, cells = roipool.roi_pool(FEATURES, ROIS, 2, return_argmax=True)

        def by_samples(argmax: Any) -> Any:
            return roipool.roi_align_backward(
                pooled, ROIS, FEATURES.shape, 1.0, 2, mode="max", argmax=argmax
            )

        def by_cells(argmax: Any) -> Any:
            return roipool.roi_pool_backward(values, argmax, ROIS, FEATURES.shape)

        for backward, argmax in ((by_samples, samples), (by_cells, cells)):
            expected = np.asarray(backward(argmax))
            assert expected.any()
            assert_same_bits(np.asarray(backward(argmax.astype(dtype))), expected)


@pytest.mark.parametrize(
    ("wrong", "dtype"),
    [(4, "int32"), (4, "uint8"), (2**32 - 1, "uint32"), (2**32, "int64"), (2**63, "uint64")],
)
def test_an_argmax_beyond_its_samples_is_an_error(wrong: int, dtype: str) -> None:
    def backward(argmax: Any) -> Any:
        return roipool.roi_align_backward(
            POOLED, ROIS, (2, 3, 8, 9), 1.0, 2, mode="max", argmax=argmax
        )

    with (
        jax.enable_x64(True),
        pytest.raises(jax.errors.JaxRuntimeError, match="argmax is out of range"),
    ):
        jax.block_until_ready(jax.jit(backward)(jnp.full(POOLED.shape, wrong, dtype)))


@pytest.mark.parametrize("name", ["spatial_scale", "sampling_ratio", "aligned"])
def test_traced_values_where_values_are_needed(name: str) -> None:
    with pytest.raises(TypeError, match=f"roi_align: {name} must be"):
        jax.jit(lambda value: pool(**{name: value}))(1)
    with pytest.raises(TypeError, match="roi_align: output_size must be"):
        jax.jit(lambda value: pool(size=value))(2)


def test_shapes_and_levels_that_are_traced() -> None:
    with pytest.raises(TypeError, match="roi_align_backward: input_shape must be four integers"):
        jax.jit(lambda shape: roipool.roi_align_backward(POOLED, ROIS, shape))(jnp.arange(4))
    with pytest.raises(TypeError, match="multilevel_roi_align: spatial_scales"):
        jax.jit(
            lambda scale: roipool.multilevel_roi_align([FEATURES], ROIS, 2, [scale])  # a number
        )(1.0)
    with pytest.raises(TypeError, match=r"^assign_levels: min_level must be an int"):
        jax.jit(lambda level: roipool.assign_levels(ROIS, level, 5))(2)


def test_maps_of_no_image() -> None:
    """Compiled calls give the values of boxes of no image."""
    for case in CASES:
        at = jnp.asarray(case.boxes()), jnp.asarray(case.indices())
        pooled = jax.jit(case.pool)(jnp.zeros((0, 3, 8, 9)), *at)
        assert pooled.shape == (5, 3 // case.groups, *SIZE)
        assert (pooled == (1.5 if case.op.filling else 0)).all()


def test_integer_boxes_have_no_gradient() -> None:
    """JAX rejects integers by default; if allowed, their gradient has type float0."""
    loss = lambda rois: pool(rois=rois).sum()  # noqa: E731
    integers = ROIS.astype(jnp.int32)
    with pytest.raises(TypeError, match="requires real"):
        jax.grad(loss)(integers)
    assert jax.grad(loss, allow_int=True)(integers).dtype == jax.dtypes.float0
    assert_same_bits(np.asarray(pool(rois=integers)), np.asarray(pool()))


def test_arrays_of_two_devices() -> None:
    result = run_python(
        """
        import jax, jax.numpy as jnp, roipool
        first, second = jax.devices()
        features = jax.device_put(jnp.ones((1, 1, 8, 8)), first)
        rois = jax.device_put(jnp.array([[0, 1, 1, 4, 4.0]]), second)
        there = jax.device_put(features, second)
        assert roipool.roi_align(there, rois, 2).devices() == {second}
        for name, call in {
            "roi_align": lambda: roipool.roi_align(features, rois, 2),
            "multilevel_roi_align": lambda: roipool.multilevel_roi_align(
                [features, there], rois, 2, [1.0, 0.5]
            ),
        }.items():
            try:
                call()
            except ValueError as error:
                assert str(error).startswith(f"{name}: ") and "device" in str(error), error
            else:
                raise AssertionError(name)
        """,
        XLA_FLAGS="--xla_force_host_platform_device_count=2",
    )
    assert result.returncode == 0, result.stderr


def test_arrays_of_other_libraries() -> None:
    class Other:
        def __dlpack__(self) -> Any: ...

    with pytest.raises(TypeError, match=r"roi_align: rois must be a JAX array.*Other"):
        pool(rois=Other())
    with pytest.raises(TypeError, match=r"features must be a JAX array, as other.*numpy.ndarray"):
        pool(np.asarray(FEATURES))
    assert_same_bits(np.asarray(pool(rois=np.asarray(ROIS))), np.asarray(pool()))


def test_known_boxes_beside_traced_ones() -> None:
    """Of separate images; and offsets beside boxes that are known, or the reverse."""
    parts = [BOXES[:1], BOXES[1:]]
    expected = np.asarray(pool(rois=parts))
    for number in range(2):
        for known in (parts, [*map(np.asarray, parts)]):

            def program(part: Any, known: Any = known, number: int = number) -> Any:
                return pool(rois=[part if number == place else known[place] for place in range(2)])

            assert_same_bits(np.asarray(jax.jit(program)(parts[number])), expected)
    offsets = jnp.ones((2, 2, 2, 2))
    expected = np.asarray(roipool.deform_roi_pool(FEATURES, ROIS, offsets, 2))
    by_boxes = jax.jit(lambda rois: roipool.deform_roi_pool(FEATURES, rois, offsets, 2))
    by_offsets = jax.jit(lambda offsets: roipool.deform_roi_pool(FEATURES, ROIS, offsets, 2))
    assert_same_bits(np.asarray(by_boxes(ROIS)), expected)
    assert_same_bits(np.asarray(by_offsets(offsets)), expected)


@pytest.mark.parametrize("case", [CASES[0], ALIGN], ids=str)
def test_calls_from_several_threads(case: OperationCase) -> None:
    function = jax.jit(case.pool)
    given = [
        (jnp.asarray(maps(seed=n)), jnp.asarray(case.boxes(seed=n)), jnp.asarray(case.indices()))
        for n in range(4)
    ]
    expected = [np.asarray(function(*each)) for each in given]
    got: dict[int, Any] = {}

    def work(number: int) -> None:
        for _ in range(20):
            got[number] = np.asarray(function(*given[number]))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(4):
        assert_same_bits(got[number], expected[number])
