"""Exported to ONNX: nodes whose answers in ONNX Runtime agree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from _support.combinations import each
from torch import Tensor
from torch.export import Dim

import roipool
import roipool.torch

pytest.importorskip("onnxscript", reason="onnxscript is not installed")
onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

# The exporter's own, on this Python.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


class Head(torch.nn.Module):
    """A layer and a pooling."""

    def __init__(self, operation: str, options: dict[str, Any], with_indices: bool) -> None:
        super().__init__()
        self.layer = torch.nn.Conv2d(3, 4, 3, padding=1)
        self.operation, self.options, self.with_indices = operation, options, with_indices

    def forward(self, features: Tensor, rois: Tensor) -> Tensor:
        pool = getattr(roipool, self.operation)
        boxes, indices = (rois[:, 1:], rois[:, 0]) if self.with_indices else (rois, None)
        return pool(self.layer(features), boxes, (3, 5), 0.5, batch_indices=indices, **self.options)


def boxes(count: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    first = torch.rand(count, 2, generator=generator) * 20
    size = torch.rand(count, 2, generator=generator) * 20 + 1
    return torch.cat([(torch.arange(count) % 2)[:, None], first, first + size], 1)


def export(head: Head, inputs: tuple[Tensor, Tensor]) -> Any:
    return torch.onnx.export(
        head.eval(), inputs, dynamo=True, opset_version=18, verbose=False,
        dynamic_shapes={"features": None, "rois": {0: Dim("count", min=0, max=100000)}},
        custom_translation_table=roipool.torch.onnx_translations(),
    )  # fmt: skip


CASES: dict[str, tuple[str, dict[str, Any], str]] = {
    "align, fixed": ("roi_align", {"sampling_ratio": 2}, "RoiAlign"),
    "align, adaptive, not aligned": ("roi_align", {"aligned": False}, "RoiAlign"),
    "pool": ("roi_pool", {}, "MaxRoiPool"),
}


@pytest.mark.parametrize("name", CASES)
@each(
    lambda name, with_indices, **_: not with_indices or "adaptive" not in name,
    with_indices=(False, True),
)
def test_answers_of_onnx_runtime(name: str, with_indices: bool, tmp_path: Path) -> None:
    operation, options, node = CASES[name]
    torch.manual_seed(0)
    head, features = Head(operation, options, with_indices), torch.randn(2, 3, 20, 24)
    program = export(head, (features, boxes(5, 0)))
    assert node in [each.op_type for each in program.model.graph]
    path = tmp_path / f"{with_indices}.onnx"
    program.save(path)
    session = onnxruntime.InferenceSession(path)
    rois = boxes(11, 1)
    names = [each.name for each in session.get_inputs()]
    (got,) = session.run(None, dict(zip(names, (features.numpy(), rois.numpy()), strict=True)))
    torch.testing.assert_close(torch.from_numpy(got), head(features, rois), atol=1e-5, rtol=1e-5)


def test_two_sampling_ratios_are_refused() -> None:
    head = Head("roi_align", {"sampling_ratio": (2, 3)}, False)
    with pytest.raises(Exception, match="one sampling_ratio for both axes"):
        export(head, (torch.randn(2, 3, 20, 24), boxes(5, 0)))
