"""detectron2's and mmdetection's layers, which roipool computes: stand-ins make the same calls."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from _support.golden_data import goldens
from _support.run_python import run_python
from torch import Tensor
from torch.autograd.function import once_differentiable

import roipool
import roipool.torch
from roipool.compat import detectron2
from roipool.torch._detectron2 import OVERRIDE, SCHEMAS

ops = pytest.importorskip("torchvision", reason="torchvision is not installed").ops
SCALES = (1 / 4, 1 / 8, 1 / 16, 1 / 32)
NAMES = tuple(SCHEMAS)


class Rotated(torch.autograd.Function):  # type: ignore[misc]
    """Calls the operators like detectron2's layer for rotated boxes."""

    @staticmethod
    def forward(
        ctx: Any, input: Tensor, rois: Tensor, size: tuple[int, int], scale: float, ratio: int
    ) -> Tensor:
        ctx.save_for_backward(rois)
        ctx.options = scale, *size, *input.shape, ratio
        return torch.ops.detectron2.roi_align_rotated_forward(input, rois, scale, *size, ratio)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: Tensor) -> Any:
        (rois,) = ctx.saved_tensors
        found = torch.ops.detectron2.roi_align_rotated_backward(grad, rois, *ctx.options)
        return found, None, None, None, None


def plain(input: Tensor, rois: Tensor, size: tuple[int, int], scale: float, ratio: int) -> Tensor:
    """Call torchvision like detectron2's ``ROIAlign``."""
    return ops.roi_align(input, rois.to(input.dtype), size, scale, ratio, True)


def pooler(layer: Any, maps: Sequence[Tensor], rois: Tensor, levels: Tensor) -> Tensor:
    """Pool level by level, and restore the order of boxes, like ``ROIPooler``."""
    output = torch.zeros(len(rois), maps[0].shape[1], 3, 3, dtype=maps[0].dtype)
    for level, (each, scale) in enumerate(zip(maps, SCALES, strict=True)):
        (rows,) = torch.nonzero(levels == level, as_tuple=True)
        output.index_put_((rows,), layer(each, rois[rows], (3, 3), scale, 0))
    return output


def pyramid() -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(2, 4, size, size, generator=generator) for size in (64, 32, 16, 8)]


def tables(columns: int) -> list[Tensor]:
    """Return boxes of two images, of all levels; with five columns, rotated ones."""
    generator = torch.Generator().manual_seed(1)
    corner = torch.rand(12, 2, generator=generator) * 60
    side = torch.tensor([20.0, 90, 180, 500]).repeat(3)[:, None] * torch.tensor([1.0, 0.8])
    if columns == 5:
        angle = torch.rand(12, 1, generator=generator) * 360 - 180
        return [*torch.cat([corner + 60, side, angle], 1).split([7, 5])]
    return [*torch.cat([corner, corner + side], 1).split([7, 5])]


def rows_of(lists: Sequence[Tensor]) -> Tensor:
    """Return boxes with batch indices."""
    return torch.cat(
        [torch.nn.functional.pad(boxes, (1, 0), value=image) for image, boxes in enumerate(lists)]
    )


def levels_of(lists: Sequence[Tensor]) -> Tensor:
    boxes = torch.cat([*lists])
    sides = boxes[:, 2:4] if boxes.shape[1] == 5 else boxes[:, 2:] - boxes[:, :2]
    level = (4 + torch.log2(sides.prod(1).sqrt() / 224 + 1e-8)).floor()
    return level.clamp(2, 5).long() - 2


# ---- Rotated boxes


# What detectron2's own kernel for the CPU (commit 02b5c4e2, compiled with torch 2.12) gives for
# these inputs, scale 1/2, 2 x 2 bins, by the number of samples.
FEATURES = (torch.arange(40.0) * 7 % 11).reshape(2, 1, 4, 5)
BOXES = torch.tensor([[0, 5.0, 4.0, 6, 4, 30], [1, 4.0, 5.0, 5, 3, -75]])
GRADIENT = torch.arange(1.0, 9).reshape(2, 1, 2, 2)
POOLED = {
    0: [4.758352, 4.809341, 4.819392, 3.751481, 3.796638, 4.917356, 6.972194, 8.20075],
    2: [4.758351, 4.610941, 4.733964, 3.751481, 3.796638, 4.917356, 6.605665, 8.177792],
}
BY_FEATURES = {
    0: [
        [0.0, 0.0, 0.248127, 0.367899, 0.0],
        [0.041549, 0.357953, 1.327783, 1.700291, 0.282361],
        [0.07059, 0.963997, 2.117406, 1.43181, 0.166196],
        [0.0, 0.551848, 0.37219, 0.0, 0.0],
        [0.0, 0.002485, 0.004047, 0.0, 0.0],
        [0.296741, 4.375631, 2.364894, 0.0, 0.0],
        [0.070286, 5.567779, 4.622376, 0.060245, 0.0],
        [0.0, 3.76001, 4.621156, 0.25435, 0.0],
    ],
    2: [
        [0.0, 0.008466, 0.32373, 0.331826, 0.0],
        [0.055081, 0.388989, 1.261738, 1.751896, 0.228234],
        [0.057059, 1.041405, 1.868841, 1.46638, 0.220323],
        [0.0, 0.497739, 0.485595, 0.012699, 0.0],
        [0.0, 0.012741, 0.051185, 0.0, 0.0],
        [0.414301, 4.014529, 2.493646, 0.0, 0.0],
        [0.303532, 5.369314, 4.5369, 0.26017, 0.0],
        [0.0, 3.908401, 4.280166, 0.355116, 0.0],
    ],
}


@pytest.mark.parametrize("ratio", POOLED)
def test_numbers_are_those_of_detectron2s_kernel(ratio: int) -> None:
    leaf = FEATURES.clone().requires_grad_()
    with roipool.torch.override_detectron2():
        pooled = Rotated.apply(leaf, BOXES, (2, 2), 0.5, ratio)
        pooled.backward(GRADIENT)
    near = {"atol": 2e-6, "rtol": 1e-6}
    torch.testing.assert_close(pooled.detach().flatten(), torch.tensor(POOLED[ratio]), **near)
    assert leaf.grad is not None
    torch.testing.assert_close(leaf.grad.reshape(8, 5), torch.tensor(BY_FEATURES[ratio]), **near)


def test_numbers_are_those_of_openvino() -> None:
    """mmcv's angles are radians, in either direction."""
    for case in goldens("openvino", "rotated"):
        rois = case.rois.copy()
        rois[:, 5] *= (-1 if case.record["clockwise"] else 1) * 180 / math.pi
        maps = torch.tensor(case.features)
        with roipool.torch.override_detectron2():
            pooled = torch.ops.detectron2.roi_align_rotated_forward(
                maps, torch.tensor(rois), case.scale, *case.size, case.sampling
            )
        # Degrees round an angle once more; a sample moves by it times its distance.
        np.testing.assert_allclose(pooled.numpy(), case.answers["rotated"], rtol=1e-4, atol=1e-4)


def test_a_pooler_of_rotated_boxes() -> None:
    """The results are those of compat's layer for each level bit for bit, with its gradients."""
    lists, maps = tables(5), pyramid()
    leaves = [each.clone().requires_grad_() for each in maps]
    rows, levels = rows_of(lists), levels_of(lists)
    with roipool.torch.override_detectron2():
        pooled = pooler(Rotated.apply, leaves, rows, levels)
        pooled.square().sum().backward()
    for level, (leaf, scale) in enumerate(zip(leaves, SCALES, strict=True)):
        layer = detectron2.ROIAlignRotated((3, 3), scale, 0)
        own = levels == level
        expected = layer(leaf.detach().numpy(), rows[own].numpy())
        assert np.array_equal(pooled[own].detach().numpy(), expected)
        assert leaf.grad is not None
        gradient = layer.backward(2 * expected, rows[own].numpy(), leaf.shape)
        assert np.array_equal(leaf.grad.numpy(), gradient)


def test_a_box_of_no_image_is_an_error() -> None:
    with (
        roipool.torch.override_detectron2(),
        pytest.raises(
            ValueError,
            match=r"roi_align_rotated: rois\[0, 0\] is 2.0, but the batch holds 2 images",
        ),
    ):
        Rotated.apply(FEATURES, BOXES + 2, (2, 2), 0.5, 0)


def test_batch_indices_are_cut_to_whole_numbers() -> None:
    rois = BOXES + torch.tensor([0.7, 0, 0, 0, 0, 0])
    with roipool.torch.override_detectron2():
        found = Rotated.apply(FEATURES, rois, (2, 2), 0.5, 0)
        assert torch.equal(found, Rotated.apply(FEATURES, BOXES, (2, 2), 0.5, 0))


# ---- Whether detectron2 is compiled or not


@pytest.fixture
def compiled() -> Iterator[None]:
    """Define the operators for all devices, like ``detectron2._C``."""
    library = torch.library.Library("detectron2", "FRAGMENT")
    for name, schema in SCHEMAS.items():
        library.define(name + schema)
        library.impl(name, lambda first, *_: first + 1, "CompositeImplicitAutograd")
    yield
    library._destroy()


def test_operators_exist_within_the_context_only() -> None:
    for _ in range(2):  # what is taken back can be had again
        with roipool.torch.override_detectron2():
            with roipool.torch.override_detectron2():
                assert all(hasattr(torch.ops.detectron2, name) for name in NAMES)
            assert Rotated.apply(FEATURES, BOXES, (2, 2), 0.5, 0).shape == (2, 1, 2, 2)
        assert not any(hasattr(torch.ops.detectron2, name) for name in NAMES)
    assert not OVERRIDE.is_active


def test_operators_of_a_compiled_detectron2_come_back(compiled: None) -> None:
    assert torch.equal(Rotated.apply(FEATURES, BOXES, (2, 2), 0.5, 0), FEATURES + 1)
    with roipool.torch.override_detectron2():
        found = Rotated.apply(FEATURES, BOXES, (2, 2), 0.5, 2)
    torch.testing.assert_close(found.flatten(), torch.tensor(POOLED[2]), atol=2e-6, rtol=1e-6)
    assert torch.equal(Rotated.apply(FEATURES, BOXES, (2, 2), 0.5, 0), FEATURES + 1)


# A compiled part, which defines the operators when it is imported.
COMPILED = """
import torch
library = torch.library.Library("detectron2", "DEF")
for name in ("roi_align_rotated_forward", "roi_align_rotated_backward"):
    more = ", int a, int b, int c, int d" if "backward" in name else ""
    library.define(f"{name}(Tensor x, Tensor r, float s, int h, int w{more}, int n) -> Tensor")
    library.impl(name, lambda first, *_: first + 1, "CompositeImplicitAutograd")
"""


def test_a_compiled_part_is_imported_before(tmp_path: Path) -> None:
    """It could not define its operators if roipool's were registered."""
    (tmp_path / "detectron2").mkdir()
    (tmp_path / "detectron2" / "__init__.py").touch()
    (tmp_path / "detectron2" / "_C.py").write_text(COMPILED)
    done = run_python(
        """
        import torch, roipool.torch
        maps, rois = torch.ones(1, 1, 8, 8), torch.tensor([[0, 4.0, 4, 2, 2, 30]])
        with roipool.torch.override_detectron2():
            import detectron2._C
            found = torch.ops.detectron2.roi_align_rotated_forward(maps, rois, 1.0, 2, 2, 0)
        after = torch.ops.detectron2.roi_align_rotated_forward(maps, rois, 1.0, 2, 2, 0)
        print(found.shape[2], found.max().item(), after.shape[2], after.max().item())
        """,
        path=tmp_path,
    )
    assert done.stdout.split() == ["2", "1.0", "8", "2.0"], done.stderr


def test_an_override_that_fails_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise RuntimeError("refused")

    monkeypatch.setattr("roipool.torch._detectron2.register_kernels", refuse)
    with pytest.raises(RuntimeError, match="refused"), roipool.torch.override_detectron2():
        pass
    assert not OVERRIDE.is_active
    monkeypatch.undo()
    with roipool.torch.override_detectron2():
        assert Rotated.apply(FEATURES, BOXES, (2, 2), 0.5, 0).shape == (2, 1, 2, 2)


# ---- Boxes along the axes


def test_a_pooler_of_detectron2_calls_torchvision() -> None:
    lists, maps = tables(4), pyramid()
    rois, levels = rows_of(lists), levels_of(lists)
    theirs = pooler(plain, maps, rois, levels)
    with roipool.torch.override_torchvision():
        ours = pooler(plain, maps, rois, levels)
    torch.testing.assert_close(ours, theirs)
    assert torch.equal(ours, roipool.multilevel_roi_align(maps, rois, 3, SCALES, levels=levels))


class Extractor(torch.nn.Module):  # type: ignore[misc]
    """Builds and calls the layers of a configuration like mmdetection 3."""

    def __init__(self, roi_layer: dict[str, Any], channels: int, strides: Sequence[int]) -> None:
        super().__init__()
        options = roi_layer.copy()
        layer = options.pop("type")
        self.layers = torch.nn.ModuleList(
            layer(spatial_scale=1 / stride, **options) for stride in strides
        )
        self.channels = channels

    def forward(self, maps: Sequence[Tensor], rois: Tensor, levels: Tensor) -> Tensor:
        size = self.layers[0].output_size
        pooled = maps[0].new_zeros(rois.size(0), self.channels, *size)
        for level, layer in enumerate(self.layers):
            rows = (levels == level).nonzero(as_tuple=False).squeeze(1)
            pooled[rows] = layer(maps[level], rois[rows])
        return pooled


@pytest.mark.parametrize("more", [{}, {"use_torchvision": True}, {"pool_mode": "max"}])
def test_a_layer_in_mmdetections_configuration(more: dict[str, Any]) -> None:
    config = {"type": roipool.torch.nn.RoIAlign, "output_size": 3, "sampling_ratio": 0, **more}
    lists, maps = tables(4), pyramid()
    rois, levels = rows_of(lists), levels_of(lists)
    found = Extractor(config, 4, (4, 8, 16, 32))(maps, rois, levels)
    for level, scale in enumerate(SCALES):
        rows = levels == level
        expected = roipool.roi_align(
            maps[level], rois[rows], 3, scale, mode=more.get("pool_mode", "avg")
        )
        assert torch.equal(found[rows], expected)
