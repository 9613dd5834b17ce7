"""Writes the goldens of OpenVINO's operations; run it where OpenVINO is installed.

python scripts/openvino_goldens.py tests/data/goldens
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import golden_files
import numpy as np
import openvino
from openvino import opset1, opset15
from openvino.utils.node_factory import NodeFactory

CASES = 30


Record: TypeAlias = dict[str, Any]


def computed(node_of: Callable[..., Any], *inputs: Any) -> Any:
    """Return the result of OpenVINO's CPU plugin for a model of one operation."""
    parameters = [opset15.parameter(one.shape, one.dtype) for one in inputs]
    model = openvino.Model([node_of(*parameters)], parameters, "one")
    exact = {"INFERENCE_PRECISION_HINT": "f32"}
    compiled = openvino.Core().compile_model(model, "CPU", exact)
    return compiled([np.ascontiguousarray(one) for one in inputs])[compiled.output(0)]


def rotated(record: Record, features: Any, rois: Any) -> dict[str, Any]:
    """Return the result of ROIAlignRotated-15."""
    options = record["sampling_ratio"], record["spatial_scale"], record["clockwise"]
    node = partial_node(opset15.roi_align_rotated, *record["output_size"], *options)
    return {"rotated": computed(node, features, rois[:, 1:], rois[:, 0].astype(np.int32))}


def upright(record: Record, features: Any, rois: Any, fractions: Any) -> dict[str, Any]:
    """Return the results of ROIAlign-9 and ROIPooling-2."""
    images, scale = rois[:, 0].astype(np.int32), record["spatial_scale"]
    answers = {}
    for mode in ("avg", "max"):
        options = record["sampling_ratio"], scale, mode, record["aligned_mode"]
        node = partial_node(opset15.roi_align, *record["output_size"], *options)
        answers[f"align_{mode}"] = computed(node, features, rois[:, 1:], images)
    for method, listed in (("max", rois), ("bilinear", fractions)):
        node = partial_node(opset15.roi_pooling, record["output_size"], scale, method)
        answers[f"pool_{method}"] = computed(node, features, listed)
    return answers


def extracted(rois: Any, layers: list[Any], attributes: Record) -> Any:
    """Return the result of ExperimentalDetectronROIFeatureExtractor-6."""
    create = NodeFactory("opset6").create
    name = "ExperimentalDetectronROIFeatureExtractor"
    return computed(lambda *nodes: create(name, list(nodes), attributes).output(0), rois, *layers)


def partial_node(function: Callable[..., Any], *options: Any) -> Callable[..., Any]:
    """Return a function of the input nodes only."""
    return lambda *nodes: function(*nodes, *options)


def with_fractions(record: Record, features: Any, rois: Any) -> dict[str, Any]:
    """Return inputs with boxes that are fractions of the map, for bilinear ROIPooling."""
    height, width = features.shape[2:]
    sides = np.array([width, height, width, height], np.float32)
    parts = rois[:, 1:] * np.float32(record["spatial_scale"]) / sides
    return {"features": features, "rois": rois, "fractions": np.hstack([rois[:, :1], parts])}


def rotated_boxes(rng: np.random.Generator, count: int, images: int, extent: float) -> Any:
    """Return boxes over the edge, outside, thin, or larger than the image, at any angle."""
    centre = rng.uniform(-0.3 * extent, 1.3 * extent, (count, 2))
    sides = rng.uniform(0, extent, (count, 2)) * rng.choice([0.05, 0.5, 1.5], (count, 1))
    angles = rng.uniform(-7, 7, (count, 1))
    quarter = rng.random((count, 1)) < 0.3
    angles = np.where(quarter, np.round(angles / (np.pi / 4)) * (np.pi / 4), angles)
    numbers = rng.integers(0, images, (count, 1))
    return np.hstack([numbers, centre, sides, angles]).astype(np.float32)


def upright_boxes(rng: np.random.Generator, count: int, images: int, extent: float) -> Any:
    """Return boxes over the edge, outside, flat, reversed if not adaptive, or on half pixels."""
    start = rng.uniform(-0.3 * extent, extent, (count, 2))
    sides = rng.uniform(0, extent, (count, 2)) * rng.choice([0, 0.05, 0.5, 1.2], (count, 1))
    corners = np.hstack([start, start + sides])
    halves = rng.random((count, 1)) < 0.3
    corners = np.where(halves, np.round(corners * 2) / 2, corners)
    return np.hstack([rng.integers(0, images, (count, 1)), corners]).astype(np.float32)


def rotated_cases(rng: np.random.Generator) -> Iterator[tuple[Record, dict[str, Any]]]:
    """Yield options, maps and boxes for ROIAlignRotated."""
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
        rois = rotated_boxes(rng, 12, images, max(height, width) / scale)
        yield record, {"features": features, "rois": rois}


def upright_cases(rng: np.random.Generator) -> Iterator[tuple[Record, dict[str, Any]]]:
    """Yield options, maps and boxes for ROIAlign and ROIPooling."""
    for number in range(CASES):
        scale = float(np.float32(rng.choice([1.0, 0.5, 0.25, 1 / 16, 0.3])))
        images, height, width = (int(n) for n in rng.integers((1, 1, 1), (3, 9, 9)))
        mode = ("asymmetric", "half_pixel_for_nn", "half_pixel")[number % 3]
        record = {
            "id": number,
            "output_size": [int(n) for n in rng.integers(1, 5, 2)],
            "spatial_scale": scale,
            "sampling_ratio": int(rng.choice([0, 1, 2, 3])),
            "aligned": mode != "asymmetric",
            "aligned_mode": mode,
        }
        features = rng.normal(size=(images, 2, height, width)).astype(np.float32)
        rois = upright_boxes(rng, 6, images, max(height, width) / scale)
        if record["sampling_ratio"]:  # OpenVINO crashes if the grid of such a box is adaptive
            rois[::3, 1:] = rois[::3, [3, 4, 1, 2]]
        yield record, with_fractions(record, features, rois)
    # In float32 bin 6 of 7 ends after cell 57 of 57.
    record = record | {"id": CASES, "output_size": [1, 7], "spatial_scale": 1.0}
    features = rng.normal(size=(1, 1, 1, 60)).astype(np.float32)
    rois = np.array([[0, 0, 0, 56, 0]], np.float32)
    yield record, with_fractions(record, features, rois)


def position_sensitive_cases(rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    """Yield inputs, options and answers of PSROIPooling; in some cases -1 ends the boxes."""
    for number in range(CASES):
        scale = float(np.float32(rng.choice([1.0, 0.5, 0.25, 1 / 16, 0.3])))
        images, height, width = (int(n) for n in rng.integers((1, 1, 1), (3, 9, 9)))
        group, channels, across, down = (int(n) for n in rng.integers(1, (5, 3, 4, 4)))
        rois = upright_boxes(rng, 6, images, max(height, width) / scale)
        rois[::3, 1:] = rois[::3, [3, 4, 1, 2]]
        if number % 5 == 4:
            rois[4, 0] = -1
        # Fractions times the scale are fractions of the map.
        fractions = rois.copy()
        fractions[:, 1:] /= np.array([width, height, width, height], np.float32)
        options = channels, group, scale, across, down
        found: dict[str, Any] = {"options": np.array(options), "rois": rois, "fractions": fractions}
        modes = ("average", group * group, rois), ("bilinear", across * down, fractions)
        for mode, count, listed in modes:
            shape = images, channels * count, height, width
            maps = rng.normal(size=shape).astype(np.float32)
            node = partial_node(opset15.psroi_pooling, *options, mode)
            found |= {f"{mode}_maps": maps, mode: computed(node, maps, listed)}
        yield found


def deformable_cases(rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    """Yield inputs, options and answers of DeformablePSROIPooling; some have no offsets."""
    for number in range(CASES):
        scale = float(np.float32(rng.choice([1.0, 0.5, 0.25, 1 / 16, 0.3])))
        images, height, width = (int(n) for n in rng.integers((1, 1, 1), (3, 9, 9)))
        group, of_class, classes, part = (int(n) for n in rng.integers(1, (5, 3, 4, 5)))
        across, down = (int(n) for n in rng.integers(1, 5, 2))
        deviation = float(np.float32(rng.choice([0.1, 0.5, 1.0])))
        rois = upright_boxes(rng, 6, images, max(height, width) / scale)
        rois[::3, 1:] = rois[::3, [3, 4, 1, 2]]
        if number % 5 == 4:
            rois[4, 0] = -1
        shape = images, of_class * classes * group * group, height, width
        maps = rng.normal(size=shape).astype(np.float32)
        offsets = rng.normal(size=(6, 2 * classes, part, part)).astype(np.float32)
        options = of_class * classes, scale, group, across, down, deviation, part
        inputs = (maps, rois) if number % 6 == 5 else (maps, rois, offsets)
        pooled = computed(partial(deformable_node, options), *inputs)
        found = {"options": np.array(options), "maps": maps, "rois": rois, "pooled": pooled}
        if len(inputs) > 2:
            found["offsets"] = offsets
        yield found


def deformable_node(options: tuple[Any, ...], maps: Any, rois: Any, offsets: Any = None) -> Any:
    """Return DeformablePSROIPooling-1, whose last input may be missing."""
    channels, scale, group, across, down, deviation, part = options
    return opset1.deformable_psroi_pooling(
        maps,
        rois,
        channels,
        scale,
        group,
        "bilinear_deformable",
        across,
        down,
        deviation,
        part,
        offsets,
    )


def pyramid_cases(rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    """Yield inputs, options and answers of the feature extractor."""
    for number in range(CASES):
        levels, side = int(rng.integers(1, 5)), int(rng.integers(8, 17))
        layers = [
            rng.normal(size=(1, 2, max(1, side >> level), max(1, side >> level)))
            for level in range(levels)
        ]
        rois = upright_boxes(rng, 8, 1, side * 16)[:, 1:]
        attributes = {
            "output_size": int(rng.integers(1, 4)),
            "sampling_ratio": int(rng.choice([0, 1, 2])),
            "pyramid_scales": [16 << level for level in range(levels)],
            "aligned": bool(number % 2),
        }
        maps = [layer.astype(np.float32) for layer in layers]
        yield {
            **{f"layer{level}": one for level, one in enumerate(maps)},
            **{key: np.array(value) for key, value in attributes.items()},
            "rois": rois,
            "pooled": extracted(rois, maps, attributes),
        }


def write(folder: Path, name: str, answer: Callable[..., Any], cases: Iterable[Any]) -> None:
    """Write inputs, answers and options."""
    inputs, answers, records = {}, {}, []
    for record, arrays in cases:
        start = f"case{record['id']}_"
        inputs |= {f"{start}{key}": array for key, array in arrays.items()}
        found = answer(record, **arrays)
        answers |= {f"{start}{key}": array for key, array in found.items()}
        records.append(record)
    np.savez_compressed(folder / f"{name}_inputs.npz", **inputs)
    np.savez_compressed(folder / f"{name}.npz", **answers)
    lines = ",\n".join(json.dumps(record) for record in records)
    (folder / f"{name}_cases.json").write_text(f"[\n{lines}\n]\n")


def main() -> None:
    """Write the goldens."""
    folder = golden_files.folder_of_arguments(__doc__)
    write(folder, "openvino", rotated, rotated_cases(np.random.default_rng(15)))
    write(folder, "openvino_upright", upright, upright_cases(np.random.default_rng(9)))
    for name, cases, seed in (
        ("ps", position_sensitive_cases, 1),
        ("deformable", deformable_cases, 2),
        ("pyramids", pyramid_cases, 6),
    ):
        golden_files.write(folder, f"openvino_{name}", cases(np.random.default_rng(seed)))
    processor = openvino.Core().get_property("CPU", "FULL_DEVICE_NAME")
    print(f"openvino {openvino.__version__}, {processor}")


if __name__ == "__main__":
    main()
