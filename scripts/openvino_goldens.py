"""Writes the goldens of OpenVINO's ROIAlignRotated-15; run it where OpenVINO is installed.

python scripts/openvino_goldens.py tests/data/goldens
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import openvino
from openvino import opset15

CASES = 30


def answer(record: dict[str, Any], features: Any, rois: Any) -> Any:
    """Return the result of OpenVINO's CPU plugin."""
    maps = opset15.parameter(features.shape, np.float32)
    boxes = opset15.parameter((len(rois), 5), np.float32)
    images = opset15.parameter((len(rois),), np.int32)
    node = opset15.roi_align_rotated(
        maps,
        boxes,
        images,
        *record["output_size"],
        record["sampling_ratio"],
        record["spatial_scale"],
        record["clockwise"],
    )
    model = openvino.Model([node], [maps, boxes, images], "rotated")
    exact = {"INFERENCE_PRECISION_HINT": "f32"}
    compiled = openvino.Core().compile_model(model, "CPU", exact)
    result = compiled([features, rois[:, 1:].copy(), rois[:, 0].astype(np.int32)])
    return result[compiled.output(0)]


def boxes(rng: np.random.Generator, count: int, images: int, extent: float) -> Any:
    """Return boxes over the edge, outside, thin, or larger than the image, at any angle."""
    centre = rng.uniform(-0.3 * extent, 1.3 * extent, (count, 2))
    sides = rng.uniform(0, extent, (count, 2)) * rng.choice([0.05, 0.5, 1.5], (count, 1))
    angles = rng.uniform(-7, 7, (count, 1))
    quarter = rng.random((count, 1)) < 0.3
    angles = np.where(quarter, np.round(angles / (np.pi / 4)) * (np.pi / 4), angles)
    numbers = rng.integers(0, images, (count, 1))
    return np.hstack([numbers, centre, sides, angles]).astype(np.float32)


def main() -> None:
    """Write inputs, answers and options."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    rng = np.random.default_rng(15)
    inputs, answers, records = {}, {}, []
    for number in range(CASES):
        scale = float(rng.choice([1.0, 0.25, 1 / 16, 1 / 3]))
        images, channels, height, width = (
            int(n) for n in rng.integers((1, 1, 2, 2), (3, 6, 20, 20))
        )
        record = {
            "id": number,
            "output_size": [int(n) for n in rng.integers(1, 8, 2)],
            "spatial_scale": scale,
            "sampling_ratio": int(rng.choice([0, 1, 2, 3])),
            "aligned": True,
            "clockwise": bool(number % 2),
        }
        features = rng.normal(size=(images, channels, height, width)).astype(np.float32)
        rois = boxes(rng, 12, images, max(height, width) / scale)
        inputs |= {f"case{number}_features": features, f"case{number}_rois": rois}
        answers[f"case{number}_rotated"] = answer(record, features, rois)
        records.append(record)
    np.savez_compressed(folder / "openvino_inputs.npz", **inputs)
    np.savez_compressed(folder / "openvino.npz", **answers)
    lines = ",\n".join(json.dumps(record) for record in records)
    (folder / "openvino_cases.json").write_text(f"[\n{lines}\n]\n")
    processor = openvino.Core().get_property("CPU", "FULL_DEVICE_NAME")
    print(f"openvino {openvino.__version__}, {processor}")


if __name__ == "__main__":
    main()
