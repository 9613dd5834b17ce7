"""Which goldens the package ships for ``roipool verify``; run it to write them again."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from _support.golden_data import FOLDER, Array

SHIPPED = Path(__file__).parents[1] / "roipool" / "verification" / "goldens"
# Small cases that hold every kind of answer: adaptive and fixed grids, aligned and not.
CASES = {
    "": (18, 20, 30, 37, 39),
    "mxnet_": (2, 17, 18),
    "onnxruntime_": (9, 27, 30, 33),
    "chainer_pooling_": (2, 8, 12),
    "chainer_max_pooling_": (3, 16),
    "chainer_align_": (4, 9),
    "paddle_": (1, 7, 13),
    "mmcv_deform_": (10, 15),
    "mmcv_prroi_": (0, 4, 7),
    "mmcv_rotated_": (0, 5, 7),
    "mmcv_riroi_": (14, 21),
    "mxnet_rotated_": (0, 5),
    "paddle_align_": (1, 11),
    "openvino_": (3, 7),
    "openvino_upright_": (9, 20, 30),
}
PROGRAMS = {
    "": ("torchvision", "mmcv", "tensorflow"),
    "mxnet_": ("mxnet",),
    "onnxruntime_": ("onnxruntime",),
    "chainer_pooling_": ("chainer_pooling",),
    "chainer_max_pooling_": ("chainer_max_pooling",),
    "chainer_align_": ("chainer_align",),
    "paddle_": ("paddle",),
    "mmcv_deform_": ("mmcv_deform",),
    "mmcv_prroi_": ("mmcv_prroi",),
    "mmcv_rotated_": ("mmcv_rotated",),
    "mmcv_riroi_": ("mmcv_riroi",),
    "mxnet_rotated_": ("mxnet_rotated",),
    "paddle_align_": ("paddle_align",),
    "openvino_": ("openvino",),
    "openvino_upright_": ("openvino_upright",),
}


def selected() -> dict[str, dict[str, Array]]:
    """Return the shipped arrays by file and key."""
    files = {}
    for prefix, numbers in CASES.items():
        starts = tuple(f"case{number}_" for number in numbers)
        for name in (f"{prefix}inputs", *PROGRAMS[prefix]):
            with np.load(FOLDER / f"{name}.npz") as arrays:
                files[name] = {key: arrays[key] for key in arrays if key.startswith(starts)}
    return files


def records(prefix: str) -> list[dict[str, object]]:
    """Return the options of the shipped cases."""
    every = json.loads((FOLDER / f"{prefix}cases.json").read_text())
    return [record for record in every if record["id"] in CASES[prefix]]


def main() -> None:
    """Write the shipped files."""
    SHIPPED.mkdir(exist_ok=True)
    for name, arrays in selected().items():
        np.savez_compressed(SHIPPED / f"{name}.npz", **arrays)
    for prefix in CASES:
        lines = ",\n".join(json.dumps(record) for record in records(prefix))
        (SHIPPED / f"{prefix}cases.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
