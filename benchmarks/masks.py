"""Times pasting of masks beside torchvision and detectron2's rule, and within a whole Mask R-CNN.

    pip install pycocotools torch torchvision
    python benchmarks/masks.py [--rounds N] [--model] [--threads N]

100 masks of 28 x 28 are pasted into 800 x 1333 pixels, into boxes of 5 to 35 % of its sides, to
bool; and encoded as COCO's run lengths. Programs take turns in one process; each row has the best
wall time and processor time of several rounds, and how many times ours that is. Memory is that of a
process of its own on Linux, at its highest, beyond that before the call. Then 1,000 masks are
encoded for 4000 x 6000 pixels. `--model` times torchvision's Mask R-CNN (R50, weights are random)
on a picture of 1200 x 1600 pixels, whole and the pasting in it, on its own and within
`override_torchvision`: the second inference of each.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import json
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pycocotools import mask as coco
from torch import Tensor
from torch.nn.functional import grid_sample
from torchvision.models.detection import maskrcnn_resnet50_fpn, roi_heads, transform

import roipool
import roipool.torch

COUNT, SIZE = 100, (800, 1333)
LARGE_COUNT, LARGE_SIZE = 1000, (4000, 6000)
PICTURE = (1200, 1600)
STATUS = Path("/proc/self/status")

Work = Callable[[], Any]
Times = tuple[float, float]


def masks_and_boxes(count: int, size: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Return masks like a network's, smooth and with noise, and boxes inside a picture."""
    generator = torch.Generator().manual_seed(0)
    extent = torch.tensor([size[1], size[0]])
    middle = torch.rand(count, 2, generator=generator) * extent
    reach = (torch.rand(count, 2, generator=generator) * 0.3 + 0.05) * extent / 2
    boxes = torch.cat([(middle - reach).clamp(min=0), torch.minimum(middle + reach, extent)], 1)
    rough = torch.rand(count, 1, 5, 5, generator=generator)
    smooth = torch.nn.functional.interpolate(rough, size=(28, 28), mode="bilinear")
    noise = torch.rand(count, 1, 28, 28, generator=generator)
    return 0.9 * smooth + 0.1 * noise, boxes


def detectron2_rule(masks: Tensor, boxes: Tensor, size: tuple[int, int]) -> Tensor:
    """Paste like detectron2 on a CPU: mask after mask, in the box and a pixel around it."""
    out = torch.zeros(len(masks), *size, dtype=torch.bool)
    for number, (mask, box) in enumerate(zip(masks, boxes, strict=True)):
        left, top = (box[:2].floor() - 1).clamp(min=0).int().tolist()
        right, bottom = (box[2:].ceil() + 1).int().tolist()
        right, bottom = min(right, size[1]), min(bottom, size[0])
        rows = (torch.arange(top, bottom) + 0.5 - box[1]) / (box[3] - box[1]) * 2 - 1
        columns = (torch.arange(left, right) + 0.5 - box[0]) / (box[2] - box[0]) * 2 - 1
        shape = len(rows), len(columns)
        grid = torch.stack([columns[None].expand(shape), rows[:, None].expand(shape)], dim=2)
        values = grid_sample(mask[None], grid[None], align_corners=False)[0, 0]
        out[number, top:bottom, left:right] = values >= 0.5
    return out


def encoded(pasted: Tensor) -> list[Any]:
    """Encode masks one after the other, as detectron2's evaluator does."""
    pictures = pasted.numpy().view(np.uint8)
    return [coco.encode(np.asfortranarray(each[:, :, None]))[0] for each in pictures]


def works() -> dict[str, dict[str, Work]]:
    """Return what is compared: ours first."""
    masks, boxes = masks_and_boxes(COUNT, SIZE)
    own, table = masks[:, 0].numpy(), boxes.numpy()
    return {
        "to bool": {
            "roipool.paste_masks": lambda: roipool.paste_masks(own, table, SIZE, threshold=0.5),
            "detectron2's rule": lambda: detectron2_rule(masks, boxes, SIZE),
            "torchvision": lambda: roi_heads.paste_masks_in_image(masks, boxes, SIZE) >= 0.5,
        },
        "to run lengths": {
            "roipool.masks_to_rle": lambda: roipool.masks_to_rle(own, table, SIZE),
            "detectron2's rule, pycocotools": lambda: encoded(detectron2_rule(masks, boxes, SIZE)),
        },
    }


def best_times(compared: Mapping[str, Work], rounds: int) -> dict[str, tuple[float, float]]:
    """Return the best wall and processor seconds of each, in turns."""
    best = dict.fromkeys(compared, (np.inf, np.inf))
    for _ in range(rounds):
        for name, work in compared.items():
            wall, processor = time.perf_counter(), time.process_time()
            work()
            took = time.perf_counter() - wall, time.process_time() - processor
            best[name] = min(best[name][0], took[0]), min(best[name][1], took[1])
    return best


def compare(rounds: int) -> None:
    """Print the times of each program."""
    for title, compared in works().items():
        times = best_times(compared, rounds)
        first = next(iter(times.values()))
        for name, (wall, processor) in times.items():
            ratios = wall / first[0], processor / first[1]
            print(
                f"{title:15s} {name:31s} {wall * 1e3:9.1f} ms {processor * 1e3:9.1f} ms of "
                f"processors {ratios[0]:7.1f} x {ratios[1]:7.1f} x",
                flush=True,
            )


# ---- Memory


def highest() -> float:
    """Return the highest resident memory of this process since `forget_highest`, in MiB (Linux)."""
    (line,) = (each for each in STATUS.read_text().splitlines() if each.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


def forget_highest() -> None:
    """Let the memory that is resident now be the highest so far."""
    Path("/proc/self/clear_refs").write_text("5")


def measure_memory(name: str, threads: int) -> None:
    """Print as JSON what a call adds to the highest memory, its seconds, and its result's MiB."""
    count, size = (COUNT, SIZE) if name == "bool" else (LARGE_COUNT, LARGE_SIZE)
    masks, boxes = masks_and_boxes(count, size)
    own, table = masks[:, 0].numpy(), boxes.numpy()
    roipool.set_num_threads(threads)
    roipool.masks_to_rle(own[:2], table[:2], (50, 50))
    roipool.paste_masks(own[:2], table[:2], (50, 50), threshold=0.5)
    forget_highest()
    before, begin = highest(), time.perf_counter()
    if name == "bool":
        bytes_of_result = roipool.paste_masks(own, table, size, threshold=0.5).nbytes
    else:
        lengths = roipool.masks_to_rle(own, table, size)
        bytes_of_result = sum(len(each["counts"]) for each in lengths)
    seconds = time.perf_counter() - begin
    print(json.dumps([highest() - before, seconds, bytes_of_result / 2**20]))


def memory(threads: int) -> None:
    """Print the memory of calls in processes of their own."""
    for name, what in (
        ("bool", f"{COUNT} masks to bool in {SIZE[0]} x {SIZE[1]}"),
        ("run lengths", f"{LARGE_COUNT} masks to run lengths in {LARGE_SIZE[0]} x {LARGE_SIZE[1]}"),
    ):
        command = [sys.executable, __file__, "--memory", name, "--threads", str(threads)]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
        added, seconds, size = json.loads(done.stdout)
        print(f"{what}: {added:.1f} MiB, of a result of {size:.1f} MiB; {seconds:.2f} s")


# ---- A whole model


def whole_model() -> None:
    """Print the time of an inference, and the share of pasting."""
    torch.manual_seed(0)
    options: dict[str, Any] = {"weights": None, "weights_backbone": None, "box_score_thresh": 0.0}
    model = maskrcnn_resnet50_fpn(**options, min_size=480, max_size=640).eval()
    picture, found = [torch.rand(3, *PICTURE)], {}
    for name, context in (
        ("torchvision", nullcontext),
        ("override_torchvision", roipool.torch.override_torchvision),
    ):
        with torch.inference_mode(), context():
            replaced = transform.paste_masks_in_image
            for _ in range(2):
                found.pop(name, None)  # not both results in memory
                pasting: list[Times] = []
                transform.paste_masks_in_image = functools.partial(timed, replaced, pasting)
                try:
                    begin = times()
                    (found[name],) = model(picture)
                    whole = [now - before for now, before in zip(times(), begin, strict=True)]
                finally:
                    transform.paste_masks_in_image = replaced
        own = pasting[-1]
        print(
            f"Mask R-CNN, {PICTURE[0]} x {PICTURE[1]}, {name}: {whole[0]:.2f} s, pasting "
            f"{own[0]:.2f} s, {100 * own[0] / whole[0]:.1f} %; of processors {whole[1]:.2f} s, "
            f"{own[1]:.2f} s, {100 * own[1] / whole[1]:.1f} %",
            flush=True,
        )
    theirs, ours = found.values()
    for name, values in theirs.items():
        difference = (values.double() - ours[name].double()).abs().max()
        print(f"largest difference of {name}: {difference:.2g}, shape {tuple(values.shape)}")


def times() -> Times:
    """Return seconds on the clock, and of processors."""
    return time.perf_counter(), time.process_time()


def timed(function: Callable[..., Any], seconds: list[Times], *args: Any) -> Any:
    """Call a function, and note how long it takes."""
    begin = times()
    result = function(*args)
    end = times()
    seconds.append((end[0] - begin[0], end[1] - begin[1]))
    return result


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--model", action="store_true", help="also time torchvision's Mask R-CNN")
    parser.add_argument("--memory", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.memory:
        measure_memory(given.memory, given.threads)
        return
    torch.set_num_threads(given.threads)
    roipool.set_num_threads(given.threads)
    print(f"{datetime.date.today()}, {platform.machine()}, {given.threads} threads")
    compare(given.rounds)
    memory(given.threads)
    if given.model:
        whole_model()


if __name__ == "__main__":
    main()
