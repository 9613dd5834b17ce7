"""torch operators that pool each box from one of several maps: those of ``PYRAMID_OPS``.

As in ``_operators``; features are a list of maps, and every operator takes the level of each box.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from roipool import _arguments as check
from roipool._arguments import Regions
from roipool._definitions import PYRAMID_OPS, Op
from roipool._layout import Layout
from roipool._pooling import Pooling
from roipool.torch._memory import (
    CHANNELS_LAST,
    INTEGERS,
    Bridge,
    as_stored,
    empty_maps,
    is_channels_last,
    map_array,
)
from roipool.torch._operators import (
    FAMILIES,
    SCHEMA_TYPES,
    Family,
    Settings,
    cached_pooling,
    register,
)


def are_channels_last(maps: Sequence[Tensor]) -> bool:
    """Return whether maps are stored channels last; those of one cell are so in either format."""
    return any(map(is_channels_last, maps)) and all(
        each.is_contiguous(memory_format=CHANNELS_LAST) for each in maps
    )


def four_by_four(sizes: Sequence[int]) -> list[tuple[int, int, int, int]]:
    """Return the shapes that one list holds, one after the other."""
    return [
        (sizes[at], sizes[at + 1], sizes[at + 2], sizes[at + 3]) for at in range(0, len(sizes), 4)
    ]


class PyramidFamily(Family):
    """The operators of an operation that pools by an average from several maps."""

    def __init__(self, op: Op) -> None:
        super().__init__(op, is_maximum=False)
        types = {"spatial_scales": "Sequence[float]"}
        alone = dict(self.placing)
        self.placing = {name: types.get(name) or alone[name] for name in op.placing}

    # ---- What the arguments mean

    def settings(self, size: Any, placing: Sequence[Any], filling: Any = 0.0) -> Settings:
        """Return the settings of an operator, checked and in its types."""
        scales, ratio, aligned = placing
        maps = len(check.sequence("spatial_scales", scales))
        checked = (
            check.scales("spatial_scales", scales, maps),
            check.sampling_pair("sampling_ratio", ratio),
            check.flag("aligned", aligned),
        )
        return (check.size_pair(self.op.size, size), *checked)

    def pooling(self, channels_last: bool, settings: Settings) -> Pooling:
        """Return an engine's request."""
        size, (scales, *placing) = settings[0], self.placing_of(settings)
        layout: Layout = "NHWC" if channels_last else "NCHW"
        size = check.size_pair(self.op.size, tuple(size))
        definition = self._definition(scales[0], *placing)
        return Pooling(definition, size, layout, 0.0, self.rules, tuple(scales))

    def moves_with_boxes(self, placing: Settings) -> bool:
        """Return whether pooled values follow the boxes, or jump from cell to cell."""
        (scale, *_), *others = placing
        return super().moves_with_boxes((scale, *others))

    def check_maps(
        self, features: Sequence[Tensor], boxes: Tensor, indices: Tensor | None, levels: Tensor,
        scales: Sequence[float],
    ) -> None:  # fmt: skip
        """Check types, shapes and devices, also of tensors without values."""
        if not features:
            raise ValueError("features must hold one map at least, got none")
        for number, maps in enumerate(features):
            self.check(f"features[{number}]", maps, boxes, indices)
            if maps.dtype is not features[0].dtype:
                raise TypeError(
                    f"features[{number}] must have the dtype of features[0], "
                    f"{features[0].dtype}, got {maps.dtype}"
                )
            if maps.shape[:2] != features[0].shape[:2]:
                raise ValueError(
                    f"features must have equal numbers of images and channels, got "
                    f"{tuple(features[0].shape)} and, at {number}, {tuple(maps.shape)}"
                )
        self.check_levels("features", features[0], boxes, levels)
        self.check_scales(len(features), scales)

    def check_levels(self, maps_name: str, maps: Tensor, boxes: Tensor, levels: Tensor) -> None:
        """Check the type, the shape and the device of levels."""
        if levels.dtype not in INTEGERS:
            raise TypeError(f"levels must hold integers, got {levels.dtype}")
        if levels.dim() != 1:
            raise ValueError(f"levels must have shape (K,), got {tuple(levels.shape)}")
        self.check_device("levels", levels, maps_name, maps)

    def check_scales(self, maps: int, scales: Sequence[float]) -> None:
        """Check that there is one scale for each map."""
        if len(scales) != maps:
            raise ValueError(
                f"spatial_scales must hold one number per map: got {len(scales)} for {maps}"
            )

    def _on_levels(
        self, bridge: Bridge, boxes: Tensor, indices: Tensor | None, levels: Tensor, maps: int,
        images: int, dtype: Any,
    ) -> Regions:  # fmt: skip
        """Return boxes as engines read them, with the index of each one's map."""
        self.check_memory(boxes, indices, levels=levels)
        regions = self._regions(bridge, boxes, indices, images, dtype)
        numbers = check.levels("levels", bridge.array(levels), boxes.shape[0], maps)
        return regions._replace(levels=numbers)

    # ---- Kernels: what an operator computes on one kind of device

    def average_levels(
        self, bridge: Bridge, features: Sequence[Tensor], boxes: Tensor, indices: Tensor | None,
        levels: Tensor, *settings: Any,
    ) -> Tensor:  # fmt: skip
        """Pool maps by an average."""
        self.check_maps(features, boxes, indices, levels, settings[1])
        self.check_memory(boxes, indices, **numbered(features))
        last = are_channels_last(features)
        pooling = cached_pooling(self, last, settings)
        maps = [map_array(bridge, each, last) for each in features]
        images, channels = features[0].shape[:2]
        at = (boxes, indices, levels, len(maps))
        regions = self._on_levels(bridge, *at, images, maps[0].dtype)
        shape = (boxes.shape[0], channels, *pooling.output_size)
        out = empty_maps(shape, features[0], last)
        result = bridge.array(as_stored(out, last))
        bridge.engine().average(maps, regions, pooling, result)
        return out

    def average_levels_backward(
        self, bridge: Bridge, grad_output: Tensor, boxes: Tensor, indices: Tensor | None,
        levels: Tensor, input_shapes: Sequence[int], channels_last: bool, *placing: Any,
    ) -> list[Tensor]:  # fmt: skip
        """Return the gradients of an average with respect to each of the maps."""
        shapes = self._check_gradient(grad_output, boxes, indices, levels, input_shapes, placing)
        check.pyramid_shapes("input_shapes", {f"input_shapes[{i}]": s for i, s in shapes.items()})
        self.check_memory(boxes, indices, grad_output=grad_output)
        size = tuple(grad_output.shape[2:])
        pooling = cached_pooling(self, channels_last, (size, *placing))
        gradient = map_array(bridge, grad_output, channels_last)
        at = (boxes, indices, levels, len(shapes))
        regions = self._on_levels(bridge, *at, shapes[0][0], gradient.dtype)
        outs = [empty_maps(shape, grad_output, channels_last) for shape in shapes.values()]
        results = [map_array(bridge, each, channels_last) for each in outs]
        count = len(regions.boxes)
        check.grad_output("grad_output", gradient, count, results[0].shape, pooling.layout)
        bridge.engine().average_backward(gradient, regions, pooling, results)
        return outs

    def average_levels_backward_boxes(
        self, bridge: Bridge, grad_output: Tensor, features: Sequence[Tensor], boxes: Tensor,
        indices: Tensor | None, levels: Tensor, *placing: Any,
    ) -> Tensor:  # fmt: skip
        """Return the gradient of an average with respect to the boxes, in their shape and dtype."""
        self.check_maps(features, boxes, indices, levels, placing[0])
        self.check("grad_output", grad_output, boxes, indices)
        self.check_memory(boxes, indices, grad_output=grad_output, **numbered(features))
        last = are_channels_last(features)
        maps, gradient = (
            [map_array(bridge, each, last) for each in features],
            map_array(bridge, grad_output, last),
        )
        check.same_dtype("grad_output", gradient, "features[0]", maps[0])
        pooling = cached_pooling(self, last, (tuple(grad_output.shape[2:]), *placing))
        at = (boxes, indices, levels, len(maps))
        regions = self._on_levels(bridge, *at, features[0].shape[0], maps[0].dtype)
        count = len(regions.boxes)
        check.grad_output("grad_output", gradient, count, maps[0].shape, pooling.layout)
        slopes = bridge.engine().average_backward_boxes(gradient, maps, regions, pooling)
        dtype = self.box_dtype(boxes, features[0])
        return self._in_columns_of(boxes, bridge.tensor(slopes).to(dtype))

    def _check_gradient(
        self, grad_output: Tensor, boxes: Tensor, indices: Tensor | None, levels: Tensor,
        input_shapes: Sequence[int], placing: Settings,
    ) -> dict[int, Any]:  # fmt: skip
        self.check("grad_output", grad_output, boxes, indices)
        self.check_levels("grad_output", grad_output, boxes, levels)
        shapes = dict(enumerate(four_by_four(input_shapes)))
        self.check_scales(len(shapes), placing[0])
        return shapes

    # ---- Results of tensors without values

    def fake_average_levels(
        self, features: Sequence[Tensor], boxes: Tensor, indices: Tensor | None, levels: Tensor,
        *settings: Any,
    ) -> Tensor:  # fmt: skip
        """Return the result of `average_levels` without values."""
        self.check_maps(features, boxes, indices, levels, settings[1])
        shape = (boxes.shape[0], features[0].shape[1], *settings[0])
        return empty_maps(shape, features[0], are_channels_last(features))

    def fake_average_levels_backward(
        self, grad_output: Tensor, boxes: Tensor, indices: Tensor | None, levels: Tensor,
        input_shapes: Sequence[int], channels_last: bool, *placing: Any,
    ) -> list[Tensor]:  # fmt: skip
        """Return the results of `average_levels_backward` without values."""
        shapes = self._check_gradient(grad_output, boxes, indices, levels, input_shapes, placing)
        return [empty_maps(shape, grad_output, channels_last) for shape in shapes.values()]

    def fake_average_levels_backward_boxes(
        self, grad_output: Tensor, features: Sequence[Tensor], boxes: Tensor,
        indices: Tensor | None, levels: Tensor, *placing: Any,
    ) -> Tensor:  # fmt: skip
        """Return the result of `average_levels_backward_boxes` without values."""
        self.check_maps(features, boxes, indices, levels, placing[0])
        self.check("grad_output", grad_output, boxes, indices)
        return boxes.new_empty(boxes.shape, dtype=self.box_dtype(boxes, features[0]))


def numbered(features: Sequence[Tensor]) -> dict[str, Tensor]:
    """Return the maps of a pyramid by the names that errors give them."""
    return {f"features[{number}]": maps for number, maps in enumerate(features)}


def schemas(family: PyramidFamily) -> dict[str, str]:
    """Return the operators of a family: what each computes, and its schema."""
    op, name = family.op, family.name
    boxes = f"Tensor {op.boxes}, Tensor? {op.indices}, Tensor levels"
    placing = "".join(f", {SCHEMA_TYPES[kind]} {each}" for each, kind in family.placing.items())
    shapes = "SymInt[] input_shapes, bool channels_last"
    return {
        "average_levels": f"{name}(Tensor[] features, {boxes}, SymInt[2] {op.size}{placing})"
        " -> Tensor",
        "average_levels_backward": f"{op.backward}(Tensor grad_output, {boxes}, {shapes}{placing})"
        " -> Tensor[]",
        "average_levels_backward_boxes": f"{op.backward_boxes}(Tensor grad_output, "
        f"Tensor[] features, {boxes}{placing}) -> Tensor",
    }


PYRAMID_FAMILIES = {op.forward: PyramidFamily(op) for op in PYRAMID_OPS.values()}
for _family in PYRAMID_FAMILIES.values():
    register(_family, schemas(_family))
ALL_FAMILIES: dict[str, Family] = {**FAMILIES, **PYRAMID_FAMILIES}
