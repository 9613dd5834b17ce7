"""Masks under other systems' names, beside what these released programs answered."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from _support.backends import Backend, thorough_on_the_emulator
from _support.compare import assert_close, assert_same_bits
from _support.golden_data import Arrays, recorded

import roipool
from roipool import compat

CASES = [*recorded("masks")]
MASKS, BOXES = np.ones((1, 1, 2, 2), np.float32), np.array([[1.0, 1, 3, 3]])
ZEROS: Any = itertools.repeat(0)  # without an end
MANY_AXES: Any = memoryview(np.ones((2, 2)))


def on(backend: Backend, case: Arrays, *names: str) -> list[Any]:
    return [backend.to_device(case[name]) for name in names]


@thorough_on_the_emulator
def test_torchvision_pastes(backend: Backend) -> None:
    paste = compat.torchvision
    for case in CASES:
        masks, boxes, gradient = on(backend, case, "masks", "boxes", "grad")
        size, padding = tuple(case["size"].tolist()), case["padding"].item()
        found = backend.to_host(paste.paste_masks_in_image(masks, boxes, size, padding))
        np.testing.assert_allclose(found, case["torchvision"], rtol=0, atol=2e-6)
        found = paste.paste_masks_in_image_backward(gradient, boxes, case["masks"].shape, padding)
        terms = paste.paste_masks_in_image_backward(
            np.abs(case["grad"]), case["boxes"], case["masks"].shape, padding
        )
        assert_close(backend.to_host(found), case["gradient"], terms + 1e-6, ulps=64)


@thorough_on_the_emulator
def test_torchvision_cuts_targets(backend: Backend) -> None:
    for case in CASES:
        given = on(backend, case, "pictures", "boxes", "numbers")
        found = backend.to_host(compat.torchvision.project_masks_on_boxes(*given, 7))
        np.testing.assert_allclose(found, case["targets"], rtol=0, atol=1e-5)


@thorough_on_the_emulator
def test_the_rule_of_detectron2_and_mmdetection(backend: Backend) -> None:
    for case in CASES:
        masks, boxes = on(backend, case, "masks", "boxes")
        size, near = tuple(case["size"].tolist()), np.abs(case["values"] - 0.5) < 2e-6
        values = backend.to_host(roipool.paste_masks(masks, boxes, size))[:, 0]
        np.testing.assert_allclose(values, case["values"], rtol=0, atol=2e-6)
        found = backend.to_host(compat.detectron2.paste_masks_in_image(masks, boxes, size))
        assert not ((found != case["binary"]) & ~near).any()
        pasted, slices = compat.mmdet.do_paste_mask(masks, boxes, *size, skip_empty=False)
        assert_same_bits(backend.to_host(pasted), values)
        assert slices == ()
        part, slices = compat.mmdet.do_paste_mask(masks, boxes, *size)
        assert_same_bits(backend.to_host(part), values[:, slices[0], slices[1]])
        outside = values.copy()
        outside[:, slices[0], slices[1]] = 0
        assert not (outside >= 0.5).any()


def test_pycocotools_encodes() -> None:
    for case in CASES:
        size, near = tuple(case["size"].tolist()), np.abs(case["values"] - 0.5) < 2e-6
        found = roipool.masks_to_rle(case["masks"], case["boxes"], size)
        for number, each in enumerate(found):
            if not near[number].any():
                assert each["counts"] == case[f"counts{number}"].tobytes()


@thorough_on_the_emulator
def test_matterport_unmolds(backend: Backend) -> None:
    for case in CASES:
        for mask, box, expected in zip(
            case["masks"], case["whole"], case["matterport"], strict=True
        ):
            own = backend.to_device(mask[0].astype(np.float64))
            shape = (*case["size"].tolist(), 3)
            found = compat.matterport.unmold_mask(own, backend.to_device(box), shape)
            assert_same_bits(backend.to_host(found), expected)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: compat.torchvision.paste_masks_in_image(MASKS[0], BOXES, (4, 5)), ValueError,
         r"masks must have shape \(K, 1, h, w\) with cells"),
        (lambda: compat.torchvision.paste_masks_in_image(MASKS, BOXES, (4, 5), -1), ValueError,
         "padding must be from 0"),
        (lambda: compat.torchvision.paste_masks_in_image(MASKS, BOXES, (4, 5), 1.5), TypeError,
         "padding must be an int"),
        (lambda: compat.torchvision.paste_masks_in_image(MASKS, BOXES, (0, 5)), ValueError,
         "img_shape must be from 1"),
        (lambda: compat.torchvision.project_masks_on_boxes(MASKS[0], BOXES, [0], 0), ValueError,
         "M must be from 1"),
        (lambda: compat.torchvision.project_masks_on_boxes(MASKS[0], BOXES, [1], 2), ValueError,
         r"matched_idxs\[0\] is 1"),
        (lambda: compat.detectron2.paste_masks_in_image(np.ones((1, 2, 3)), BOXES, (4, 5)),
         ValueError, "masks must be square"),
        (lambda: compat.mmdet.do_paste_mask(MASKS, BOXES, 0, 5), ValueError,
         "img_h and img_w must be from 1"),
        (lambda: compat.mmdet.crop_and_resize(MASKS[0], BOXES, 2, [0], binarize=1), TypeError,
         "binarize must be a bool"),
        (lambda: compat.matterport.unmold_mask(MASKS[0, 0], BOXES, (4, 5)), ValueError,
         r"bbox must have shape \(4,\)"),
        (lambda: compat.matterport.unmold_mask(MASKS[0], BOXES[0], (4, 5)), ValueError,
         "mask must have 2 dimensions"),
        (lambda: compat.matterport.unmold_mask(MASKS[0, 0], BOXES[0], MANY_AXES), TypeError,
         "image_shape must be integers"),
        (lambda: compat.matterport.unmold_mask(MASKS[0, 0], BOXES[0], ZEROS),
         ValueError, "image_shape must be from 1"),
    ],
)  # fmt: skip
def test_wrong_arguments(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


@pytest.mark.parametrize("threshold", [0.5, -1.0])
def test_no_masks(threshold: float) -> None:
    none = np.ones((0, 2, 2), np.float32)
    found = compat.detectron2.paste_masks_in_image(none, np.ones((0, 4)), (4, 5), threshold)
    assert found.shape == (0, 4, 5)
    part, slices = compat.mmdet.do_paste_mask(none, np.ones((0, 4)), 4, 5)
    assert (part.shape, slices) == ((0, 0, 0), (slice(0, 0), slice(0, 0)))
