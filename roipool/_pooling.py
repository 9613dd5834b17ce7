"""One call on arrays of any library, from its arguments to the result.

An engine fills arrays of NumPy and CuPy; the verbs of PyTorch, JAX and Dask return results.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from roipool import _arguments as check
from roipool import _boxes, _cpu
from roipool._arrays import LIBRARY_OF, NUMPY, Array, Library, common_library
from roipool._boxes import CORNERS, Form, Regions
from roipool._definitions import POINTWISE, Definition
from roipool._dtypes import FLOATS, POOLED_DTYPES, dtype_name, numpy_dtype
from roipool._engines import Engine, Verbs, maximum_backward
from roipool._kept import small_result
from roipool._layout import (
    Layout,
    Shape4,
    are_channels_last,
    cells,
    nchw_view,
    nhwc_view,
)
from roipool._masks.request import Pasting
from roipool._request import (
    DEFAULT_RULES,
    KIND,
    LAST,
    Computed,
    MaxRules,
    Pooling,
    check_sizes,
    pooled_shape,
)

# An array of the call's library; the public functions' annotations say which.
Result: TypeAlias = Any

# Values of a batch that is computed and then rounded to another type: with one thread, what fits a
# core's cache; with several, enough for each.
BATCH_ONE_THREAD, BATCH_SEVERAL_THREADS = 2**18, 2**21


class Call(_cpu.OnDevice):
    """A call on arrays of one library: finds it once, works on their device, calls its engine.

    Parameters
    ----------
    form : Form
        How the arguments are named and the boxes given, for the methods that check them.
    **arrays
        Every argument that may be an array, by name. What is computed goes to `out`, if there is
        one.
    """

    __slots__ = (
        "_arrays",
        "_dtype",
        "_form",
        "_given_regions",
        "_scales",
        "engine",
        "library",
        "verbs",
    )

    engine: Engine
    verbs: Verbs | None
    library: Library
    _dtype: np.dtype[Any] | None

    def __init__(self, form: Form = CORNERS, /, **arrays: Any) -> None:
        self._arrays, self._form, self._dtype = arrays, form, None
        self._given_regions: Regions | None = None
        self._scales: tuple[Sequence[check.Scale], Any] | None = None
        self.library, array = NUMPY, None
        for value in arrays.values():  # here, for the sake of small calls on NumPy arrays
            if type(value) is not np.ndarray and value is not None:
                self.library, array = common_library(arrays)
                break
        self.engine, self.verbs = self.library.engine, self.library.verbs
        self._device = None if array is None else self.library.device(array)

    @property
    def size_name(self) -> str:
        """The name of the argument with the size of results."""
        return self._form.size

    @property
    def is_on_host(self) -> bool:
        """Whether the arrays are in the host's memory, not on a GPU."""
        return self._device is None

    # ---- Arguments, checked and converted; `form` has the names of those with arrays

    def checked_forward(
        self,
        definition: Definition,
        output_size: Any,
        layout: str = "NCHW",
        empty_value: float = 0.0,
        rules: MaxRules = DEFAULT_RULES,
        dtypes: Sequence[str] = FLOATS,
        dtype: Any = None,
    ) -> tuple[Array, Regions, Pooling]:
        """Return the features, which may have these dtypes, the boxes, and the request.

        `dtype` is that of the pooled values, if the caller chooses it.
        """
        pooling = self.request(definition, output_size, layout, empty_value, rules)
        return self._forward_arrays(pooling, dtypes, dtype)

    def request(
        self,
        definition: Definition,
        output_size: Any,
        layout: str = "NCHW",
        empty_value: float = 0.0,
        rules: MaxRules = DEFAULT_RULES,
    ) -> Pooling:
        """Return the request of a forward."""
        layout = "NCHW" if type(layout) is str and layout == "NCHW" else check.layout(layout)
        size = check.size_pair(self._form.size, output_size)
        return Pooling(definition, size, layout, empty_value, rules)

    def _forward_arrays(
        self, pooling: Pooling, dtypes: Sequence[str], dtype: Any
    ) -> tuple[Array, Regions, Pooling]:
        """Return the features, the boxes, and the request of a forward as engines take them."""
        arrays, form, definition = self._arrays, self._form, pooling.definition
        maps = check.float_array(form.features, arrays[form.features], dtypes, 4, pooling.layout)
        if dtype is not None:
            own = dtype_name(self.library.dtype(maps))
            self._dtype = numpy_dtype(check.pooled_dtype(dtype, own))
        regions = self.regions(maps.shape[0], self.library.dtype(maps))
        if type(definition.scale) is tuple:
            regions = self.in_cells(regions, [definition.scale])
            pooling = pooling._replace(definition=definition._replace(scale=1.0))
        # Not a call, for the sake of small ones.
        if definition.name in POINTWISE or definition.group_size != (1, 1):
            check_sizes(form.features, maps.shape, form.size, pooling)
        if form.offsets is not None:
            regions = self._with_offsets(regions, pooling, maps.shape)
        return maps, regions, pooling

    def checked_backward(
        self,
        definition: Definition,
        input_shape: Any,
        layout: str = "NCHW",
        rules: MaxRules = DEFAULT_RULES,
    ) -> tuple[Array, Regions, Pooling, Shape4]:
        """Return the gradient of pooled values, the boxes, the request, and the maps' shape."""
        name, layout = self._form.input_shape, check.layout(layout)
        shape = check.map_shape(name, input_shape, layout)
        return *self.checked_gradient(name, shape, definition, layout, rules), shape

    def checked_backward_boxes(
        self, definition: Definition, layout: str = "NCHW", rules: MaxRules = DEFAULT_RULES
    ) -> tuple[Array, list[Array], Regions, Pooling]:
        """Return the gradient of pooled values, the features, the boxes, and the request."""
        form, layout = self._form, check.layout(layout)
        maps = check.float_array(form.features, self._arrays[form.features], layout=layout)
        checked = self.checked_gradient(form.features, maps.shape, definition, layout, rules)
        gradient, regions, pooling = checked
        check.same_dtype(form.grad_output, gradient, form.features, maps)
        return gradient, [maps], regions, pooling

    def checked_gradient(
        self,
        name: str,
        shape: Shape4,
        definition: Definition,
        layout: Layout = "NCHW",
        rules: MaxRules = DEFAULT_RULES,
        scales: tuple[float, ...] = (),
    ) -> tuple[Array, Regions, Pooling]:
        """Return the gradient of pooled values of such maps, the boxes, and the request.

        `name` is the argument that gives the maps' shape; `scales` are those of a pyramid.
        """
        gradient_name = self._form.grad_output
        gradient = check.float_array(gradient_name, self._arrays[gradient_name])
        regions = self.regions(shape[0], self.library.dtype(gradient))
        if type(definition.scale) is tuple:
            regions = self.in_cells(regions, [definition.scale])
            definition = definition._replace(scale=1.0)
        count, groups = regions.boxes.shape[0], definition.group_size
        size = check.grad_output(gradient_name, gradient, count, shape, layout, groups)
        pooling = Pooling(definition, size, layout, rules=rules, scales=scales)
        check_sizes(name, shape, gradient_name, pooling)
        if self._form.offsets is not None:
            regions = self._with_offsets(regions, pooling, shape)
        return gradient, regions, pooling

    def regions(self, images: int, dtype: np.dtype[Any]) -> Regions:
        """Return the boxes, for maps of `images` images."""
        arrays, form = self._arrays, self._form
        regions = form.read(arrays[form.boxes], arrays.get(form.indices), images, dtype, form)
        if self.verbs is not None:
            regions = self._owned(regions)
        self._given_regions = regions
        return regions

    def in_cells(self, regions: Regions, scales: Sequence[check.Scale]) -> Regions:
        """Return boxes in cells, for a scale of 1: rows and columns have scales of their own."""
        own = regions if self.verbs is None else self._owned(regions)
        self._scales = scales, own.levels  # for gradients by image pixels
        return own._replace(boxes=_boxes.scaled(own.boxes, *self._scales))

    def _record(
        self,
        result: Any,
        maps: Sequence[Array],
        regions: Regions,
        pooling: Pooling,
        shapes: Sequence[Shape4] | None = None,
        argmax: Any = None,
        **kind: bool,
    ) -> None:
        """Tell who keeps calls how this one was computed; `kind` is part of `Computed.kind`."""
        form, arrays = self._form, self._arrays
        if self._dtype is not None or arrays.get("out") is not None:
            return
        how = self._how_alike(regions, pooling)
        first = form.features if shapes is None else form.grad_output
        names = (first, form.boxes, "levels")
        given = tuple([arrays[name] for name in names if arrays.get(name) is not None])
        results = (result,) if argmax is None else (result, argmax)
        indices, columns = arrays.get(form.indices), len(form.columns)
        of, kind = None if shapes is None else tuple(shapes), {**KIND, **(how or {}), **kind}
        is_alike = how is not None
        LAST.call = Computed(
            results, given, indices, pooling, columns, of, kind, maps, regions, is_alike
        )

    def _how_alike(self, regions: Regions, pooling: Pooling) -> dict[str, bool] | None:
        """Return how boxes are read if others can be computed like this call, else None.

        They can for boxes as the caller gave them; on a host, or of tensors, on one map, or on a
        GPU also on several.
        """
        own, how = self._given_regions, _boxes.TABLE_READERS.get(self._form.read)
        if own is None or regions.boxes is not own.boxes:
            return None
        is_on_gpu = self._device is not None and (self.verbs is None or bool(pooling.scales))
        return how if is_on_gpu or (regions is own and _cpu.is_kept(pooling)) else None

    def _as_given(self, regions: Regions, pooling: Pooling) -> tuple[Regions, dict[str, bool]]:
        """Return boxes for verbs: within the caller's table, if small calls read that.

        Then a call saves the same for its derivatives whether it is small or not, as programs do
        demand that compute it again. `cuts` is an argument of the verbs of a library with small
        calls.
        """
        how = self._how_alike(regions, pooling) if LAST.is_asked_for else None
        table: Any = self._arrays.get(self._form.boxes)
        if how is None or LIBRARY_OF[type(table)] is not self.library:
            return regions, {}
        if tuple(table.shape[1:]) != (len(self._form.columns) + 1,):
            return regions, {}
        return Regions(table, None, regions.levels), {"cuts": how.get("cuts", False)}

    def _owned(self, regions: Regions) -> Regions:
        """Return regions as arrays of the call's library: those of an empty list are NumPy's."""
        owned = [
            self.library.owned(each) if isinstance(each, np.ndarray) else each for each in regions
        ]
        return Regions(*owned)

    def mask(self, regions: Regions, pooling: Pooling) -> Array | None:
        """Return the weights of bins, checked, in the order of the layout; None without a mask."""
        mask = self._arrays.get("mask")
        if mask is None:
            return None
        size, layout = pooling.output_size, pooling.layout
        weights = _boxes.of_bins("mask", mask, 1, regions.boxes.shape[0], size, layout)
        return nhwc_view(weights) if layout == "NHWC" else weights

    def masked(self, grad_output: Array, regions: Regions, pooling: Pooling) -> Array:
        """Return the gradient of pooled values before they are multiplied by the mask."""
        weights = self.mask(regions, pooling)
        return grad_output if weights is None else _boxes.weighted(grad_output, weights)

    def _with_offsets(self, regions: Regions, pooling: Pooling, maps: Shape4) -> Regions:
        """Return boxes with the offsets of their bins, on maps of such a shape."""
        name, size, layout = str(self._form.offsets), pooling.output_size, pooling.layout
        offsets = _boxes.of_bins(name, self._arrays[name], 2, regions.boxes.shape[0], size, layout)
        return _boxes.with_offsets(offsets, regions)

    # ---- What the engine computes, from the arguments

    def averages(
        self, pooling: Pooling, dtypes: Sequence[str] = FLOATS, dtype: Any = None
    ) -> Result:
        """Check the features, which may have these dtypes, and the boxes; average them.

        Small calls take all of `FLOATS`. `dtype` is as for :meth:`checked_forward`.
        """
        if LAST.is_asked_for and dtype is None and self.library is NUMPY:
            result = small_result(self._form, self._arrays, pooling)
            if result is not None:
                return result
        maps, regions, pooling = self._forward_arrays(pooling, dtypes, dtype)
        return self.average([maps], regions, pooling)

    def maxima(
        self,
        pooling: Pooling,
        dtypes: Sequence[str] = FLOATS,
        dtype: Any = None,
        *,
        return_argmax: bool,
    ) -> Result:
        """Like :meth:`averages`, for maxima, with their argmax if that is asked for."""
        if LAST.is_asked_for and dtype is None and self.library is NUMPY:
            kind = {"is_maximum": True, "returns_argmax": return_argmax}
            result = small_result(self._form, self._arrays, pooling, **kind)
            if result is not None:
                return result
        maps, regions, pooling = self._forward_arrays(pooling, dtypes, dtype)
        pooled, argmax = self.maximum(maps, regions, pooling, return_argmax=return_argmax)
        return (pooled, argmax) if return_argmax else pooled

    # ---- What the engine computes, from checked arrays

    def filled(
        self,
        function: str,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        arrays: Sequence[Array],
        request: Pasting,
    ) -> Result:
        """Return an array that a function of the engine fills, a row for each row of `arrays`."""
        out = self._arrays.get("out")
        if self.verbs is not None:
            self._refuse_out(self.library.array)
            return self.verbs.filled(function, shape, dtype, arrays, request)
        own = None if out is None else check.output(self.library, shape, dtype, **self._arrays)
        if own is None:
            own, is_zero = self.library.unfilled(shape, dtype)
            request = request._replace(on_zeros=is_zero)
        getattr(self.engine, function)(*arrays, request, own)
        return self._filled(own)

    def average(self, features: Sequence[Array], regions: Regions, pooling: Pooling) -> Result:
        """Average forward."""
        if self.verbs is not None:
            own, how = self._as_given(regions, pooling)
            result = self._returned(self.verbs.average(features, own, pooling, **how))
            if LAST.is_asked_for:
                self._record(result, features, regions, pooling)
            return result
        count, size, layout = len(regions.boxes), pooling.output_size, pooling.layout
        groups = pooling.definition.group_size
        shape = pooled_shape(features[0].shape, count, size, layout, groups)
        result = self._result(shape, features, layout)
        if features[0].size == 0:
            features, regions = self._single_empty_image(features, regions)
        if self._dtype is None:
            self.engine.average(features, regions, pooling, result)
            if LAST.is_asked_for:
                self._record(result, features, regions, pooling)
        else:
            for part, values in self._box_batches(features, regions, pooling, result):
                self.engine.average(features, part, pooling, values)
        return result if self._arrays.get("out") is None else self._filled(result)

    def average_backward(
        self, grad_output: Array, regions: Regions, pooling: Pooling, input_shape: Shape4
    ) -> Result:
        """Average backward."""
        if self.verbs is not None:
            shapes = (input_shape,)
            return self._returned(
                self.verbs.average_backward(grad_output, regions, pooling, shapes)[0]
            )
        result = self._result(input_shape, [grad_output], pooling.layout)
        self.engine.average_backward(grad_output, regions, pooling, [result])
        if LAST.is_asked_for:
            self._record(result, (), regions, pooling, [input_shape])
        return self._filled(result)

    def average_backward_of_maps(
        self,
        grad_output: Array,
        regions: Regions,
        pooling: Pooling,
        input_shapes: Sequence[Shape4],
    ) -> list[Result]:
        """Average backward with respect to each map of a pyramid."""
        if self.verbs is not None:
            return self.verbs.average_backward(grad_output, regions, pooling, input_shapes)
        results = [self._result(shape, [grad_output], pooling.layout) for shape in input_shapes]
        self.engine.average_backward(grad_output, regions, pooling, results)
        if LAST.is_asked_for:
            self._record(results, (), regions, pooling, input_shapes)
        return results

    def moved_backward_corners(
        self, grad_output: Array, features: Sequence[Array], regions: Regions, pooling: Pooling
    ) -> Result:
        """Average backward with respect to boxes whose bins are moved."""
        own = self.masked(grad_output, regions, pooling)
        numbers = self.average_backward_boxes(own, features, regions, pooling)
        return self.library.xp().ascontiguousarray(numbers[:, : len(self._form.columns)])

    def moved_backward_offsets(
        self, grad_output: Array, features: Sequence[Array], regions: Regions, pooling: Pooling
    ) -> Result:
        """Average backward with respect to the offsets of bins."""
        own = self.masked(grad_output, regions, pooling)
        numbers = self.average_backward_boxes(own, features, regions, pooling)
        moved = numbers[:, len(self._form.columns) :]
        moved = moved.reshape(numbers.shape[0], 2, *pooling.output_size)
        moved = nhwc_view(moved) if pooling.layout == "NHWC" else moved
        return self.library.xp().ascontiguousarray(moved)

    def average_backward_boxes(
        self, grad_output: Array, features: Sequence[Array], regions: Regions, pooling: Pooling
    ) -> Result:
        """Average backward with respect to the boxes."""
        computing = self.engine if self.verbs is None else self.verbs
        gradient = computing.average_backward_boxes(grad_output, features, regions, pooling)
        return gradient if self._scales is None else _boxes.scaled(gradient, *self._scales)

    def maximum(
        self, features: Array, regions: Regions, pooling: Pooling, *, return_argmax: bool = True
    ) -> tuple[Result, Any]:
        """Maximum forward: pooled values, and the argmax, or None without `return_argmax`."""
        if self.verbs is not None:
            own, how = self._as_given(regions, pooling)
            pooled, chosen = self.verbs.maximum(features, own, pooling, **how)
            result, argmax = self._returned(pooled), chosen if return_argmax else None
            if LAST.is_asked_for:
                kind = {"is_maximum": True, "returns_argmax": return_argmax}
                self._record(result, [features], regions, pooling, None, argmax, **kind)
            return result, argmax
        count, size, layout = len(regions.boxes), pooling.output_size, pooling.layout
        shape = pooled_shape(features.shape, count, size, layout)
        result = self._result(shape, [features], layout)
        if features.size == 0:
            (features,), regions = self._single_empty_image([features], regions)
        if self._dtype is None:
            argmax = self.engine.maximum(
                features, regions, pooling, result, return_argmax=return_argmax
            )
            if LAST.is_asked_for:
                kind = {"is_maximum": True, "returns_argmax": return_argmax}
                self._record(result, [features], regions, pooling, None, argmax, **kind)
            return self._filled(result), argmax
        argmax, at_once = None, len(result) if return_argmax else 0
        for part, values in self._box_batches([features], regions, pooling, result, at_once):
            argmax = self.engine.maximum(
                features, part, pooling, values, return_argmax=return_argmax
            )
        return self._filled(result), argmax

    def maximum_backward(
        self,
        grad_output: Array,
        argmax: Any,
        regions: Regions,
        pooling: Pooling,
        input_shape: Shape4,
    ) -> Result:
        """Maximum backward: gradients go to the cells of their samples, or to the cells named."""
        limit = cells(input_shape, pooling.layout) if pooling.rules.argmax_is_cell else None
        indices = check.argmax(self.library, argmax, grad_output.shape, limit)
        if self.verbs is not None:
            return self._returned(
                self.verbs.maximum_backward(grad_output, indices, regions, pooling, input_shape)
            )
        result = self._result(input_shape, [grad_output], pooling.layout)
        maximum_backward(self.engine, grad_output, indices, regions, pooling, result)
        return self._filled(result)

    def _returned(self, result: Any) -> Any:
        """Return what verbs computed, in the dtype that the caller chose."""
        if self._dtype is None:
            return result
        assert self.verbs is not None
        return self.verbs.rounded(result, self._dtype)

    def _refuse_out(self, kind: str) -> None:
        """Raise TypeError for an `out` beside arrays of a library whose results are new."""
        if self._arrays.get("out") is not None:
            raise TypeError(f"out must be None for a {kind}")

    def _result(self, shape: Sequence[int], given: Sequence[Array], layout: Layout) -> Array:
        """Return the array that the engine fills: the caller's `out` if it can, or a new one.

        A new array lies in memory as the given maps or gradient do.
        """
        filled, dtype = None, self._dtype
        if dtype is None:
            dtype = given[0].dtype
            if dtype.kind in "iu":  # looking up every dtype would take small calls longer
                dtype = POOLED_DTYPES[dtype]
        if self._arrays.get("out") is not None:
            filled = check.output(self.library, tuple(shape), dtype, **self._arrays)
        if self._device is None:  # on a host, without a call of a method
            return self.library.empty(shape, dtype) if filled is None else filled
        if filled is None or self._is_channels_last(given, layout):
            return self._empty(shape, dtype, given, layout)
        return filled

    def _is_channels_last(self, given: Sequence[Array], layout: Layout) -> bool:
        """Return whether a GPU's maps of the layout NCHW lie in memory as if it were NHWC."""
        return self._device is not None and layout == "NCHW" and are_channels_last(given)

    def _empty(
        self, shape: Sequence[int], dtype: np.dtype[Any], given: Sequence[Array], layout: Layout
    ) -> Array:
        """Return a new array that lies in memory as the given maps or gradient do."""
        if self._is_channels_last(given, layout):
            images, channels, *size = shape
            return nchw_view(self.library.empty((images, *size, channels), dtype))
        return self.library.empty(shape, dtype)

    def _box_batches(
        self,
        features: Sequence[Array],
        regions: Regions,
        pooling: Pooling,
        result: Array,
        at_once: int = 0,
    ) -> Iterator[tuple[Regions, Array]]:
        """Yield boxes and the array to pool them to, and round it to the result afterwards.

        It is the result where that has the type that engines compute. Otherwise there are batches
        of `at_once` boxes, or fewer: all of them would need several times the result's memory.
        """
        dtype = POOLED_DTYPES.get(features[0].dtype, features[0].dtype)
        if result.dtype == dtype:
            yield regions, result
            return
        at_once = at_once or self._number_at_once(max(1, math.prod(result.shape[1:])))
        for first in range(0, max(1, len(result)), at_once):
            rows = slice(first, first + at_once)
            out = result[rows]
            values = self._empty(out.shape, dtype, features, pooling.layout)
            yield Regions(regions.boxes[rows], regions.batch_indices[rows]), values
            self.library.store_rounded(values, out)

    def _number_at_once(self, values: int) -> int:
        """Return how many boxes, of so many values, are pooled before they are rounded."""
        is_one = self.library is NUMPY and _cpu.num_threads() == 1
        return max(1, (BATCH_ONE_THREAD if is_one else BATCH_SEVERAL_THREADS) // values)

    def _single_empty_image(
        self, features: Sequence[Array], regions: Regions
    ) -> tuple[Sequence[Array], Regions]:
        """Collapse a batch of empty maps to one image: a plan has an entry for each image."""
        has_cells = any(maps.size > 0 for maps in features)
        if has_cells or self.library is not NUMPY or features[0].shape[0] <= 1:
            return features, regions
        images = np.minimum(regions.batch_indices, 0)
        return [maps[:1] for maps in features], regions._replace(batch_indices=images)

    def _filled(self, result: Array) -> Array:
        """Return the caller's `out`, filled, or the result where there is none."""
        out = self._arrays.get("out")
        if out is None or out is result:
            return result
        plain = self.library.plain(out)
        if not self.library.may_share_memory(result, plain):
            plain[...] = result
        return out

    def argmax_positions(
        self, argmax: Array, regions: Regions, pooling: Pooling, input_shape: Shape4
    ) -> tuple[Array, Array]:
        """Return the positions y and x, in map cells, of samples given by index."""
        computing = self.engine if self.verbs is None else self.verbs
        return computing.argmax_positions(argmax, regions, pooling, input_shape)

    def argmax_at(
        self, y: Array, x: Array, regions: Regions, pooling: Pooling, input_shape: Shape4
    ) -> Array:
        """Return the indices of the samples nearest to y and x; -1 where there is none."""
        if self.verbs is not None:
            return self.verbs.argmax_at(y, x, regions, pooling, input_shape)
        real = regions.boxes.dtype
        with np.errstate(over="ignore"):  # beyond the type: infinite, and at no sample
            y, x = (self.library.readable(array, real) for array in (y, x))
        return self.engine.argmax_at(y, x, regions, pooling, input_shape)
