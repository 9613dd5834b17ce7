"""Layers of `roipool.compat` as PyTorch's modules."""

from __future__ import annotations

import copy
import io
import math
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from _support.layers import LAYERS, LayerCase
from _support.run_python import run_python
from torch import Tensor
from torch.utils import _pytree

from roipool.compat import detectron2, mmcv, roialign_pytorch, torchvision

STEP = 1e-6


class Model(torch.nn.Module):  # type: ignore[misc]  # no types where no torch is
    """Holds a layer between others."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer = layer
        self.last = torch.nn.ReLU()

    def forward(self, maps: Any, boxes: Any, more: Any) -> Any:
        return self.last(self.layer(maps, boxes, *([] if more is None else [more])))


class OfTwo(Model):
    """A model for a layer with two arguments."""

    def forward(self, maps: Any, boxes: Any) -> Any:
        return super().forward(maps, boxes, None)


@pytest.fixture(name="case", params=LAYERS.values(), ids=LAYERS)
def _case(request: pytest.FixtureRequest) -> LayerCase:
    case: LayerCase = request.param
    return case


def tensors(arguments: Any, dtype: torch.dtype | None = None) -> Any:
    """Return arguments with tensors for arrays, of a dtype if they are floats."""

    def converted(value: Any) -> Any:
        if not isinstance(value, np.ndarray):
            return value
        tensor = torch.from_numpy(value)
        return tensor.to(dtype) if dtype and tensor.is_floating_point() else tensor

    return _pytree.tree_map(converted, arguments)


def model_of(case: LayerCase) -> Model:
    """Return a model with a new layer."""
    return (OfTwo if len(case.arguments) == 2 else Model)(case.make())


def required(maps: Any) -> Any:
    """Return copies of maps, with gradients."""
    return _pytree.tree_map(lambda each: each.clone().requires_grad_(), maps)


def gradients(maps: Any) -> list[Tensor]:
    """Return the gradient of each map."""
    return [each.grad for each in _pytree.tree_leaves(maps)]


def test_layers_are_modules(case: LayerCase) -> None:
    layer = case.make()
    assert isinstance(layer, torch.nn.Module)
    assert repr(layer) == case.shown
    model = torch.nn.Sequential(torch.nn.Identity(), layer)
    assert [*model.children()][1] is layer
    assert f"(1): {case.shown}\n" in repr(model)
    assert not model.eval()[1].training
    assert model.train()[1].training
    assert model.to(torch.float64)[1] is layer
    assert not model.state_dict()


def test_layers_pool_tensors(case: LayerCase) -> None:
    """The bits are those of the call on NumPy's arrays."""
    layer = case.make()
    pooled = layer(*tensors(case.arguments))
    assert isinstance(pooled, Tensor)
    np.testing.assert_array_equal(pooled.numpy(), layer(*case.arguments))


# paddle's gradient is not the derivative: tests of the function compare it.
@pytest.mark.parametrize("name", [name for name in LAYERS if name != "paddle.RoIAlign"])
def test_gradients_flow_through_models(name: str) -> None:
    """They are those of differences in a random direction."""
    case = LAYERS[name]
    first, *others = tensors(case.arguments, torch.float64)
    maps = required(first)
    model = model_of(case)
    pooled = model(maps, *others)
    weights = torch.rand(pooled.shape, dtype=torch.float64)
    (pooled * weights).sum().backward()

    def moved(step: float) -> Any:
        layer, part = case.make(), iter(directions)
        arrays = _pytree.tree_map(lambda each: (each + step * next(part)).numpy(), first)
        others = [
            _pytree.tree_map(_as_numpy, each) for each in tensors(case.arguments[1:], torch.float64)
        ]
        return np.sum(layer(arrays, *others) * weights.numpy())

    directions = [
        torch.randn(each.shape, dtype=torch.float64) for each in _pytree.tree_leaves(first)
    ]
    slope = sum(
        (own * way).sum().item() for own, way in zip(gradients(maps), directions, strict=True)
    )
    assert slope == pytest.approx((moved(STEP) - moved(-STEP)) / (2 * STEP), rel=1e-6, abs=1e-8)


def _as_numpy(value: Any) -> Any:
    return value.numpy() if isinstance(value, Tensor) else value


def test_layers_can_be_copied_and_pickled(case: LayerCase) -> None:
    model, arguments = model_of(case), tensors(case.arguments)
    expected = model(*arguments)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    copies = [
        copy.deepcopy(model),
        copy.copy(model),
        pickle.loads(pickle.dumps(model)),
        pickle.loads(pickle.dumps(model, protocol=2)),
        torch.load(file, weights_only=False),
    ]
    for each in copies:
        assert type(each.layer) is type(model.layer)
        assert repr(each) == repr(model)
        assert torch.equal(each(*arguments), expected)


def test_copies_keep_what_a_module_has() -> None:
    layer = torchvision.RoIAlign(2, 0.5, 2).eval()
    layer.register_buffer("seen", torch.ones(3))
    layer.gate = torch.nn.Linear(2, 3)
    layer.register_forward_hook(_doubled)
    for each in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert not each.training
        assert torch.equal(each.seen, layer.seen)
        assert [*each.state_dict()] == ["seen", "gate.weight", "gate.bias"]
        arguments = tensors(LAYERS["torchvision.RoIAlign"].arguments)
        assert torch.equal(each(*arguments), 2 * each.forward(*arguments))
        each.gate = None
        assert layer.gate is not None


def _doubled(_layer: Any, _arguments: Any, pooled: Tensor) -> Tensor:
    return 2 * pooled


def test_pickles_are_read_with_and_without_torch() -> None:
    """A process without torch reads those of one that has it, and writes them for it."""
    layers = {name: case.make() for name, case in LAYERS.items()}
    process = run_python(f"""
import pickle, sys
layers = pickle.loads({pickle.dumps(layers)!r})
print("torch" in sys.modules)
print([repr(layer) for layer in layers.values()])
print(pickle.dumps(layers).hex())
""")
    assert not process.returncode, process.stderr
    imported, shown, written = process.stdout.splitlines()
    assert imported == "False"
    assert shown == repr([case.shown for case in LAYERS.values()])
    for name, layer in pickle.loads(bytes.fromhex(written)).items():
        assert isinstance(layer, torch.nn.Module)
        pooled = layer(*tensors(LAYERS[name].arguments))
        assert torch.equal(pooled, layers[name](*tensors(LAYERS[name].arguments)))


def test_layers_compile_whole(case: LayerCase) -> None:
    torch._dynamo.reset()
    first, *others = tensors(case.arguments)
    eager, compiled = required(first), required(first)
    model = model_of(case)
    expected = model(eager, *others)
    expected.sum().backward()
    pooled = torch.compile(model_of(case), fullgraph=True, backend="aot_eager")(compiled, *others)
    pooled.sum().backward()
    assert torch.equal(pooled, expected)
    for own, other in zip(gradients(compiled), gradients(eager), strict=True):
        assert torch.equal(own, other)


def test_fx_records_a_layer_as_one_call(case: LayerCase) -> None:
    arguments = tensors(case.arguments)
    traced = torch.fx.symbolic_trace(model_of(case))
    calls = [node for node in traced.graph.nodes if node.op == "call_function"]
    assert len(calls) == 1
    assert calls[0].target.__module__.startswith("roipool.compat.")
    expected = model_of(case)(*arguments)
    for _ in range(2):
        assert torch.equal(traced(*arguments), expected)


def test_hooks_are_called() -> None:
    for make in (lambda: torchvision.RoIPool(2, 0.5), lambda: mmcv.RoIPool(2, 0.5)):
        layer, calls = make(), []
        layer.register_forward_pre_hook(lambda *_, calls=calls: calls.append("before"))
        layer.register_forward_hook(lambda *_, calls=calls: calls.append("after"))
        layer(*LAYERS["torchvision.RoIPool"].arguments)
        assert calls == ["before", "after"]


def test_layers_made_before_torch_is_imported_pool_tensors() -> None:
    """They are no modules; their copies are."""
    process = run_python(
        """
        import copy
        from roipool.compat import torchvision

        layer = torchvision.RoIAlign(2, 1.0, 2)
        import torch

        maps, boxes = torch.ones(1, 1, 4, 4), torch.tensor([[0, 1.0, 1, 2, 2]])
        assert not isinstance(layer, torch.nn.Module)
        again = copy.deepcopy(layer)
        assert isinstance(again, torch.nn.Module)
        assert torch.equal(layer(maps, boxes), again(maps, boxes))
        """
    )
    assert not process.returncode, process.stderr


def _of_maps(layer: Any, grad: Any, maps: Any, *boxes: Any) -> Any:
    return layer.backward(grad, *boxes, maps.shape)


def _of_pyramid(layer: Any, grad: Any, maps: Any, boxes: Any) -> Any:
    return layer.backward(grad, [each.shape for each in maps], boxes)


def _of_maxima(layer: Any, grad: Any, maps: Any, boxes: Any) -> Any:
    _, argmax = layer(maps, boxes, return_argmax=True)
    return layer.backward(grad, [each.shape for each in maps], boxes, argmax)


def _of_named(layer: Any, grad: Any, maps: Any, *boxes: Any) -> Any:
    return layer.backward(grad, {name: each.shape for name, each in maps.items()}, *boxes)


@pytest.mark.parametrize(
    ("name", "backward"),
    [
        ("torchvision.MultiScaleRoIAlign", _of_named),
        ("detectron2.ROIAlign", _of_maps),
        ("detectron2.ROIAlignRotated", _of_maps),
        ("detectron2.ROIPooler of ROIAlignV2", _of_pyramid),
        ("detectron2.ROIPooler of ROIAlignRotated", _of_pyramid),
        ("detectron2.ROIPooler of ROIPool", _of_maxima),
        ("roialign_pytorch.RoIAlign", _of_maps),
    ],
)
def test_backward_takes_tensors(name: str, backward: Any) -> None:
    """The bits are those of the call on NumPy's arrays."""
    case, layer = LAYERS[name], LAYERS[name].make()
    shape = layer(*case.arguments).shape
    grad = np.linspace(-1, 1, math.prod(shape), dtype=np.float32).reshape(shape)
    expected = backward(layer, grad, *case.arguments)
    found = backward(layer, *tensors((grad, *case.arguments)))
    pairs = zip(_pytree.tree_leaves(found), _pytree.tree_leaves(expected), strict=True)
    for own, other in pairs:
        np.testing.assert_array_equal(own.numpy(), other)


# ---- Classes of users


class Gated(torchvision.RoIAlign):
    """Has a layer and a parameter of its own, one of them before its options."""

    def __init__(self, size: int) -> None:
        self.gate = torch.nn.Linear(2, 2)
        super().__init__(size, 0.5, 2)
        self.weight = torch.nn.Parameter(torch.full((), 3.0))

    def forward(self, input: Any, rois: Any) -> Any:
        return self.weight * self.gate(super().forward(input, rois))


class Fixed(roialign_pytorch.CropAndResize):
    """Sets the options itself."""

    def __init__(self) -> None:
        self.crop_height, self.crop_width, self.extrapolation_value = 2, 3, 0


class Both(mmcv.RoIAlign, torch.nn.Module):  # type: ignore[misc]
    """Names the class of modules, too."""


class Counting(detectron2.ROIAlign):
    """Counts its calls."""

    calls = 0

    def __call__(self, *arguments: Any) -> Any:
        self.calls += 1
        return super().__call__(*arguments)


def test_classes_of_users_are_modules() -> None:
    features, rois = tensors(LAYERS["torchvision.RoIAlign"].arguments)
    gated = Gated(2)
    assert [name for name, _ in gated.named_parameters()] == ["weight", "gate.weight", "gate.bias"]
    assert repr(gated) == "Gated(output_size=2, spatial_scale=0.5, sampling_ratio=2, aligned=False)"
    gated(features, rois).sum().backward()
    assert gated.weight.grad is not None
    again = pickle.loads(pickle.dumps(gated))
    assert isinstance(again, Gated)
    assert torch.equal(again(features, rois), gated(features, rois))
    compiled = torch.compile(gated, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(features, rois), gated(features, rois))


def test_classes_of_users_need_not_call_the_layers_init() -> None:
    case = LAYERS["roialign_pytorch.CropAndResize"]
    layer = Fixed()
    assert torch.equal(layer(*tensors(case.arguments)), case.make()(*tensors(case.arguments)))
    assert repr(copy.deepcopy(layer)) == case.shown.replace("CropAndResize", "Fixed")


def test_classes_of_users_may_be_modules_already() -> None:
    features, rois = tensors(LAYERS["mmcv.RoIAlign"].arguments)
    layer = Both(2)
    assert type(layer) is Both
    layer.register_forward_hook(_doubled)
    assert torch.equal(layer(features, rois), 2 * mmcv.RoIAlign(2)(features, rois))


def test_classes_of_users_may_change_calls() -> None:
    features, rois = tensors(LAYERS["detectron2.ROIAlign"].arguments)
    layer = Counting(2, 0.5, 0)
    layer.register_forward_hook(_doubled)
    pooled = layer(features, rois)
    assert layer.calls == 1
    assert torch.equal(pooled, 2 * layer.forward(features, rois))


def test_a_class_makes_modules_of_one_class() -> None:
    first, second = torchvision.RoIAlign(2, 0.5, 2), torchvision.RoIAlign(3, 1.0, 0)
    assert type(first) is type(second)
    assert isinstance(detectron2.ROIAlign(2, 1.0, 0), torchvision.RoIAlign)
    assert type(type(first)(2, 0.5, 2)) is type(first)


# ---- The pooler of pyramids


def test_scales_are_those_of_the_first_call() -> None:
    layer = torchvision.MultiScaleRoIAlign(["0", "1"], 2, 2)
    maps, boxes, sizes = tensors(LAYERS["torchvision.MultiScaleRoIAlign"].arguments)
    traced = torch.fx.symbolic_trace(Model(layer))
    assert layer.scales is None
    expected = layer(maps, boxes, sizes)
    assert layer.scales == [1 / 8, 1 / 16]
    assert torch.equal(layer(maps, boxes, [(512, 512), (512, 512)]), expected)
    assert torch.equal(traced(maps, boxes, sizes), expected)


def test_errors_name_the_layer_and_the_argument() -> None:
    features, rois = tensors(LAYERS["detectron2.ROIAlign"].arguments)
    with pytest.raises(ValueError, match=r"^roi_align: rois must have shape"):
        detectron2.ROIAlign(2, 0.5, 0)(features, rois[:, :3])
    with pytest.raises(TypeError, match=r"^roi_align: rois must not require a gradient"):
        detectron2.ROIAlign(2, 0.5, 0)(features, rois.requires_grad_())
    layer = torchvision.MultiScaleRoIAlign(["0", "1"], 2, 2)
    _, boxes, sizes = tensors(LAYERS["torchvision.MultiScaleRoIAlign"].arguments)
    with pytest.raises(ValueError, match=r"^multi_scale_roi_align: x\['0'\] must"):
        layer({"0": features[0]}, boxes, sizes)
    with pytest.raises(TypeError, match=r"^roi_pooler: x must be a list or tuple"):
        detectron2.ROIPooler(2, (1 / 8,), 2, "ROIAlign")(features, boxes)
