"""The adapters of libraries that are on no package index, tested with stand-ins."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from roipool.cli import main

# As detectron2 has them; its rotated layer is an operator of its own.
LAYERS = """
import torch, torchvision
from roipool import roi_align_rotated
class ROIAlign(torch.nn.Module):
    def __init__(self, output_size, spatial_scale, sampling_ratio, aligned=True):
        super().__init__()
        self.arguments = output_size, spatial_scale, sampling_ratio, aligned
    def forward(self, input, rois):
        return torchvision.ops.roi_align(input, rois, *self.arguments)
class ROIAlignRotated(torch.nn.Module):
    def __init__(self, output_size, spatial_scale, sampling_ratio):
        super().__init__()
        self.arguments = output_size, spatial_scale, sampling_ratio
    def forward(self, input, rois):
        return roi_align_rotated(input, rois, *self.arguments, angle_unit="degrees")
"""


@pytest.mark.parametrize(
    ("form", "boxes", "name", "reference"),
    [
        ("xyxy", [[1, 1, 7, 7], [2.5, 1.2, 6, 9]], "ROIAlign", "roipool.roi_align"),
        ("cxcywha", [[4, 5, 6, 3, 0.4]], "ROIAlignRotated", "roipool.roi_align_rotated"),
    ],
)
def test_detectron2(
    form: str,
    boxes: list[list[float]],
    name: str,
    reference: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("torchvision")
    monkeypatch.chdir(tmp_path)
    Path("detectron2").mkdir()
    Path("detectron2/__init__.py").write_text("__version__ = '0.6'\n")
    Path("detectron2/layers.py").write_text(LAYERS)
    paths = [str(tmp_path), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    np.save("boxes.npy", boxes)
    arguments = ["--boxes", "boxes.npy", "--box-format", form, "--reference", reference]
    arguments += ["--systems", f"detectron2.{name}", "--gradients", "features"]
    arguments += ["--implementations", "detectron2"]
    assert main(["compare", "--make", "2x9x11", *arguments, "--json", "out.json"]) == 0
    for part in json.loads(Path("out.json").read_text())["parts"]:
        found = {one["name"]: one for one in part["systems"]}
        theirs = found[f"detectron2.{name}@detectron2"]
        assert theirs["error"] is None
        assert theirs["to_reference"]["greatest_difference"] < 1e-5


OWN = """
import roipool.torch
def align(features, rois, output_size, spatial_scale, sampling_ratio):
    return roipool.roi_align(features, rois, output_size, spatial_scale, sampling_ratio)
def of_features(features, rois, *arguments):
    return align(features, rois.detach(), *arguments)
def of_nothing(features, rois, *arguments):
    return of_features(features.detach(), rois, *arguments)
"""


def test_gradients_of_the_users_own_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(OWN)
    arguments = ["--systems", "roipool.roi_align", "--gradients", "features,boxes"]
    for name in ("align", "of_features", "of_nothing"):
        arguments += ["--implementation", f"own.py:{name}"]
    arguments += ["--arrays", "torch", "--json", "out.json"]
    assert main(["compare", "--make", "2x9x11", *arguments]) == 0
    same = [set(part["groups"]["A"]) for part in json.loads(Path("out.json").read_text())["parts"]]
    ours, align, of_features = "roipool.roi_align", "own.py:align", "own.py:of_features"
    assert same == [
        {ours, align, of_features, "own.py:of_nothing"},
        {ours, align, of_features},
        {ours, align},
    ]
