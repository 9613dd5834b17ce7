"""Properties that hold for all input, over random shapes, boxes and options."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any

import numpy as np
import pytest
from _support.backends import Backend, thorough_on_the_emulator
from _support.catalogue import DTYPES, VARIANTS, Array, every_dtype
from _support.compare import assert_close, assert_same_bits

import roipool
from roipool.systems import SYSTEMS
from roipool.systems.case import Case
from roipool.verification.call import run
from roipool.verification.catalogue import Entry
from roipool.verification.check import CALL, ORACLE, check

pytest.importorskip("hypothesis")

from hypothesis import given, settings
from hypothesis import strategies as st

UPRIGHT = [
    name
    for name in VARIANTS
    if SYSTEMS[name].samples != "points" and not SYSTEMS[name].offset_gradient
]
EXAMPLES = 40
EMULATED = 15  # on the emulator, which is slow
MANY = 200  # with --everything; `.ci/run` also makes 20,000 random calls


def examples(**strategies: st.SearchStrategy[Any]) -> Callable[[Callable[..., None]], Any]:
    """Call a test with a backend and many random inputs."""

    def decorate(test: Callable[..., None]) -> Any:
        @wraps(test)
        def run(backend: Backend) -> None:
            def example(**drawn: Any) -> None:
                test(backend, **drawn)

            example.__name__ = test.__name__  # under which Hypothesis remembers what failed
            few = backend.name == "emulator" and not backend.everything
            usual = EMULATED if few else EXAMPLES
            count = settings(max_examples=MANY if backend.everything else usual, deadline=None)
            # Other types there are the catalogue's: compiling them takes longer than all examples.
            only = {"dtype": st.just(DTYPES["float32"])} if few and "dtype" in strategies else {}
            count(given(**strategies | only)(example))()

        run.__signature__ = inspect.signature(run, follow_wrapped=False)  # type: ignore[attr-defined]
        return run

    return decorate


@dataclass
class Draw:
    """A random call: maps and their gradient in float64, boxes, options."""

    maps: Array
    rois: Array
    size: tuple[int, int]
    scale: float
    ratio: int | tuple[int, int]
    aligned: bool

    @property
    def place(self) -> tuple[Any, ...]:
        """Arguments of roi_align: output size, scale and sampling ratio."""
        return self.size, self.scale, self.ratio

    @property
    def grad(self) -> Array:
        """A gradient of the pooled values."""
        shape = (len(self.rois), self.maps.shape[1], *self.size)
        return np.random.default_rng(shape).normal(size=shape)

    def case(self, name: str, dtype: Any = np.float64, **changes: Any) -> Case:
        """Call an operation, with some fields changed."""
        entry = Entry(
            "drawn",
            self.rois.tolist(),
            self.maps.shape,
            self.size,
            self.scale,
            samplings=(self.ratio,),
            alignments=(self.aligned,),
        )
        ((_, case),) = entry.cases(name)
        groups = SYSTEMS[name].groups_of(case.options, self.size)
        # The channels of the second group of bins are those of the first, moved along a row.
        maps = changes.pop("maps", self.maps)
        maps = np.stack([np.roll(maps, n, axis=3) for n in range(groups)], axis=2)
        maps = maps.reshape(len(maps), -1, *maps.shape[3:])
        maps, grad = (one.astype(dtype).astype(np.float64) for one in (maps, self.grad))
        return replace(
            case, **{"maps": maps, "grad": grad, "dtype": np.dtype(dtype).name, **changes}
        )


COORDINATES = st.one_of(
    st.integers(-12, 60).map(lambda quarters: quarters / 4),
    # A GPU takes what is smaller for 0, or half of it.
    st.floats(-20, 40, width=32).map(lambda number: number if abs(number) > 1e-30 else 0.0),
    st.sampled_from([np.nan, np.inf, -np.inf, -1.0, 1e-30, 1e6, -1e6, 3e9]),
)
EXACT = st.integers(-16, 80).map(lambda eighths: eighths / 8)


@st.composite
def draws(draw: st.DrawFn, coordinates: st.SearchStrategy[float] = COORDINATES) -> Draw:
    """Draw a call."""
    images = draw(st.integers(1, 3))
    channels = draw(st.sampled_from([1, 2, 3, 5, 8, 17, 33]))
    height, width = draw(st.tuples(st.integers(1, 20), st.integers(1, 20)))
    box = st.tuples(st.integers(0, images - 1), *[coordinates] * 4)
    rois = np.array(draw(st.lists(box, max_size=5)), np.float64).reshape(-1, 5)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    return Draw(
        rng.normal(size=(images, channels, height, width)),
        rois,
        draw(st.tuples(st.integers(1, 5), st.integers(1, 5))),
        draw(st.sampled_from([1.0, 0.5, 1 / 16, 1 / 3, 0.6, 1.7])),
        draw(st.sampled_from([0, 1, 2, 3, (2, 3), (0, 1)])),
        draw(st.booleans()),
    )


dtypes = st.sampled_from(list(DTYPES.values()))


# ---- The oracle


@examples(call=draws(), dtype=dtypes)
def test_oracle(backend: Backend, call: Draw, dtype: Any) -> None:
    for name in UPRIGHT:
        for finding in check(call.case(name, dtype), (CALL, ORACLE), backend.library):
            assert finding.comparison.problem is None, f"{name}, {finding}"


# ---- Layouts, channels, images, boxes: each value depends on its own inputs only


def results_of_all(
    backend: Backend, call: Draw, dtype: Any = np.float64, *, backward: bool = False, **changes: Any
) -> dict[str, Array]:
    """Return the results of all operations, by operation and result."""
    by_name = {}
    for name in UPRIGHT:
        row = SYSTEMS[name]._replace(box_gradient="")
        row = row if backward else row._replace(backward="")
        results = run(call.case(name, dtype, **changes), backend.library, row)
        by_name.update({f"{name}, {result}": array for result, array in results.items()})
    return by_name


@thorough_on_the_emulator
@examples(call=draws(), dtype=dtypes)
def test_layouts_give_the_same_bits(backend: Backend, call: Draw, dtype: Any) -> None:
    last = results_of_all(backend, call, dtype, backward=True, layout="NHWC")
    for name, result in results_of_all(backend, call, dtype, backward=True).items():
        assert_same_bits(last[name], result)


@thorough_on_the_emulator
@examples(call=draws(), dtype=dtypes)
def test_channels_are_independent(backend: Backend, call: Draw, dtype: Any) -> None:
    together = results_of_all(backend, call, dtype)
    maps = call.case("roi_align", dtype).maps
    for channel in range(maps.shape[1]):
        some = slice(channel, channel + 1)
        alone = results_of_all(backend, call, dtype, maps=maps[:, some], grad=call.grad[:, some])
        for name, result in alone.items():
            assert_same_bits(result, together[name][:, some])


@thorough_on_the_emulator
@examples(call=draws(), dtype=dtypes, seed=st.integers(0, 2**32))
def test_order_of_boxes_does_not_matter(
    backend: Backend, call: Draw, dtype: Any, seed: int
) -> None:
    order = np.random.default_rng(seed).permutation(len(call.rois))
    given_order = results_of_all(backend, call, dtype)
    other_order = results_of_all(backend, call, dtype, rois=call.rois[order])
    for name, result in given_order.items():
        assert_same_bits(other_order[name], result[order])


@thorough_on_the_emulator
@examples(call=draws(), dtype=dtypes, seed=st.integers(0, 2**32))
def test_order_of_images_does_not_matter(
    backend: Backend, call: Draw, dtype: Any, seed: int
) -> None:
    maps = call.case("roi_align", dtype).maps
    order = np.random.default_rng(seed).permutation(len(maps))
    moved = call.rois.copy()
    moved[:, 0] = np.argsort(order)[call.rois[:, 0].astype(int)]
    given_order = results_of_all(backend, call, dtype)
    other_order = results_of_all(backend, call, dtype, maps=maps[order], rois=moved)
    for name, result in given_order.items():
        assert_same_bits(other_order[name], result)


# ---- Definition. Coordinates are eighths and sizes powers of two, so that positions are exact.


@st.composite
def exact_draws(draw: st.DrawFn) -> Draw:
    """Draw a call whose sample positions are exact in float32."""
    call = draw(draws(EXACT))
    call.size = draw(st.sampled_from([(1, 1), (2, 1), (2, 4), (4, 4)]))
    call.scale = draw(st.sampled_from([0.25, 0.5, 1.0, 2.0]))
    call.ratio = draw(st.sampled_from([1, 2, 4, (2, 1)]))
    return call


@thorough_on_the_emulator
@examples(call=exact_draws(), down=st.integers(0, 5), right=st.integers(0, 5))
def test_boxes_move_with_their_maps(backend: Backend, call: Draw, down: int, right: int) -> None:
    maps = call.maps.astype(np.float32)
    # A margin all around, so that moving changes nothing but the place.
    wide = np.pad(maps, ((0, 0), (0, 0), (2, 2), (2, 2)))
    moved = np.pad(maps, ((0, 0), (0, 0), (2 + down, 2), (2 + right, 2)))
    shift = np.array([0, right, down, right, down]) / call.scale
    height, width = (size * 1.0 for size in maps.shape[2:])
    inside = call.rois.copy()  # within the margin, whose far side no sample then reaches
    inside[:, 1::2] = np.clip(inside[:, 1::2], 0.5, max(width + 1, 0.5)) / call.scale
    inside[:, 2::2] = np.clip(inside[:, 2::2], 0.5, max(height + 1, 0.5)) / call.scale
    options: dict[str, Any] = {"aligned": call.aligned}
    for mode in ("avg", "max"):
        here, there = (
            roipool.roi_align(
                backend.to_device(array), backend.to_device(rois), *call.place, mode=mode, **options
            )
            for array, rois in ((wide, inside), (moved, inside + shift))
        )
        assert_same_bits(backend.to_host(here), backend.to_host(there))


@thorough_on_the_emulator
@examples(call=exact_draws())
def test_scale_is_a_factor_of_the_boxes(backend: Backend, call: Draw) -> None:
    scaled = results_of_all(backend, call, np.float32)
    rois = call.rois * np.array([1] + [call.scale] * 4)
    call.scale = 1.0
    for name, result in results_of_all(backend, call, np.float32, rois=rois).items():
        system = name.partition(",")[0]
        # ps_roi_pool rounds boxes before it scales them.
        if "spatial_scale" in SYSTEMS[system].options and system != "ps_roi_pool":
            assert_same_bits(result, scaled[name])


@thorough_on_the_emulator
@examples(call=exact_draws())
def test_mirrored_maps_give_mirrored_bins(backend: Backend, call: Draw) -> None:
    maps = call.maps.astype(np.float32)
    width = maps.shape[3]
    mirrored = call.rois.copy()
    mirrored[:, [1, 3]] = width / call.scale - call.rois[:, [3, 1]]
    rois = backend.to_device(call.rois)
    here = roipool.roi_align(backend.to_device(maps), rois, *call.place)
    there = roipool.roi_align(
        backend.to_device(maps[..., ::-1].copy()), backend.to_device(mirrored), *call.place
    )
    terms = roipool.roi_align(backend.to_device(np.abs(maps)), rois, *call.place)
    assert_close(
        backend.to_host(there)[..., ::-1],
        backend.to_host(here).astype(np.float64),
        backend.to_host(terms).astype(np.float64),
    )


# ---- Algebra


@thorough_on_the_emulator
@examples(call=draws(), a=st.integers(-3, 3), b=st.integers(-3, 3))
def test_average_is_linear(backend: Backend, call: Draw, a: int, b: int) -> None:
    first = call.maps
    second = np.random.default_rng(first.shape).normal(size=first.shape)
    rois = backend.to_device(call.rois)

    def pooled(maps: Array) -> Array:
        return backend.to_host(
            roipool.roi_align(backend.to_device(maps), rois, *call.place, aligned=call.aligned)
        )

    terms = pooled(np.abs(a * first) + np.abs(b * second))
    assert_close(pooled(a * first + b * second), a * pooled(first) + b * pooled(second), terms, 8)


@thorough_on_the_emulator
@examples(call=draws(EXACT))
def test_maximum_is_between_average_and_the_greatest_pixel(backend: Backend, call: Draw) -> None:
    results = results_of_all(backend, call)
    slack = 1e-14 * np.max(np.abs(call.maps))
    maxima = results["roi_align max, pooled"]
    assert np.all(maxima >= results["roi_align, pooled"] - slack)
    assert np.all(maxima <= np.maximum(np.max(call.maps), 0) + slack)


@thorough_on_the_emulator
@examples(call=draws(), dtype=dtypes)
def test_pooled_cells_are_cells(backend: Backend, call: Draw, dtype: Any) -> None:
    maps = call.maps.astype(dtype)
    results = results_of_all(backend, call, dtype)
    argmax = results["roi_pool, argmax"]
    y, x = np.divmod(np.maximum(argmax, 0), maps.shape[3])
    image = call.rois[:, 0].astype(int)[:, None, None, None]
    cells = maps[image, np.arange(maps.shape[1])[:, None, None], y, x]
    assert_same_bits(results["roi_pool, pooled"], np.where(argmax < 0, np.zeros(1, dtype), cells))


@thorough_on_the_emulator
@examples(call=draws(EXACT), value=st.sampled_from([1.0, -2.5, 0.125]))
def test_constant_maps_stay_constant_inside(backend: Backend, call: Draw, value: float) -> None:
    n, c, h, w = call.maps.shape
    maps = np.full((n, c, h, w), value, np.float32)
    x1, y1, x2, y2 = np.clip(call.rois[:, 1:], 0, [w, h, w, h]).T / call.scale
    rois = np.stack([call.rois[:, 0], *np.sort([x1, x2], 0), *np.sort([y1, y2], 0)], axis=1)
    rois = rois[:, [0, 1, 3, 2, 4]]
    got = backend.to_host(
        roipool.roi_align(
            backend.to_device(maps), backend.to_device(rois), call.size, call.scale, 2
        )
    )
    assert_close(got, np.full(got.shape, value), abs(value))


@thorough_on_the_emulator
@every_dtype
def test_identical_boxes_share_their_gradient(backend: Backend, dtype: Any) -> None:
    roi = [0, 1.25, 0.5, 6.75, 5.5]
    grad = np.random.default_rng(0).integers(-8, 9, (64, 3, 2, 2)) / 8
    total = grad.sum(axis=0, keepdims=True)
    shape = (1, 3, 7, 8)
    many, one = (
        backend.to_host(
            roipool.roi_align_backward(
                backend.to_device(upstream.astype(dtype)),
                backend.to_device(np.array([roi] * len(upstream))),
                shape,
                1.0,
                2,
            )
        )
        for upstream in (grad, total)
    )
    # Positions and gradients are multiples of small powers of two: every sum is exact.
    assert_same_bits(many, one)
