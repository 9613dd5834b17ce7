"""Actions in a video: tubes, boxes that last for a time, pooled to the same number of moments.

    python examples/video_tubes.py [PICTURE]

A video is a volume whose depth is time. Boxes are in pixels and seconds, so that the scale along
depth is the frame rate. Actions take place in boxes of various sizes, begin at any time and are
fast or slow; pooled to a fixed grid they can be compared. With a name, and Pillow, the program
writes a picture of some tubes as they are pooled.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np

import roipool

RATE, SECONDS, HEIGHT, WIDTH = 24, 4, 180, 240  # frames per second
SCALE = (RATE, 1.0, 1.0)  # cells per second and per pixel
BINS = (8, 16, 16)  # moments, rows, columns
Draw = Callable[[np.ndarray, np.ndarray, float], np.ndarray]  # of x and y from -1 to 1, and time


def disc(x: np.ndarray, y: np.ndarray, radius: float) -> np.ndarray:
    """Return how much a disc covers of each pixel."""
    return np.clip((radius - np.hypot(x, y)) * 10, 0, 1)


ACTIONS: dict[str, Draw] = {
    "comes nearer": lambda x, y, time: disc(x, y, 0.2 + 0.7 * time),
    "waves": lambda x, y, time: disc(x - 0.55 * np.sin(2 * np.pi * time), y, 0.35),
    "turns": lambda x, y, time: np.clip(
        (0.25 - np.abs(x * np.sin(np.pi * time) - y * np.cos(np.pi * time))) * 10, 0, 1
    ),
    "fades": lambda x, y, time: disc(x, y, 0.7) * (1 - time),
}


def tubes(rng: np.random.Generator) -> np.ndarray:
    """Return tubes (12, 7): image, x1, y1, t1, x2, y2, t2 in pixels and seconds."""
    places = np.stack(np.meshgrid([30, 90, 150, 210], [30, 90, 150]), -1).reshape(-1, 2)
    half = rng.uniform(12, 28, (12, 1))
    middles = places + rng.uniform(-1, 1, (12, 2)) * (29 - half)
    length = rng.uniform(0.8, 2.5, (12, 1))
    begin = rng.uniform(0, 1, (12, 1)) * (SECONDS - length)
    return np.hstack([np.zeros((12, 1)), middles - half, begin, middles + half, begin + length])


def film(rois: np.ndarray, actions: list[str], rng: np.random.Generator) -> np.ndarray:
    """Return a video (1, 3, frames, rows, columns) of noise, with an action in each tube."""
    video = rng.normal(0.2, 0.03, (3, SECONDS * RATE, HEIGHT, WIDTH))
    rows, columns = np.mgrid[:HEIGHT, :WIDTH] + 0.5
    for (_, x1, y1, t1, x2, y2, t2), action in zip(rois, actions, strict=True):
        x, y = (2 * columns - x1 - x2) / (x2 - x1), (2 * rows - y1 - y2) / (y2 - y1)
        inside = (np.abs(x) < 1) & (np.abs(y) < 1)
        colour = rng.uniform(0.5, 1, (3, 1))
        for frame in range(int(np.ceil(t1 * RATE - 0.5)), int(np.ceil(t2 * RATE - 0.5))):
            time = ((frame + 0.5) / RATE - t1) / (t2 - t1)
            video[:, frame, inside] += colour * ACTIONS[action](x[inside], y[inside], time)
    return video[None].astype(np.float32)


def most_alike(pooled: np.ndarray) -> np.ndarray:
    """Return for each tube the number of the one most like it, by their shapes alone."""
    grey = pooled.mean(axis=1).reshape(len(pooled), -1)
    grey -= grey.mean(axis=1, keepdims=True)
    grey /= np.linalg.norm(grey, axis=1, keepdims=True)
    alike = grey @ grey.T
    np.fill_diagonal(alike, -1)
    return alike.argmax(axis=1)


def picture(pooled: np.ndarray) -> np.ndarray:
    """Return a row for each tube: its moments side by side, as RGB."""
    side, gap = 4, 4
    large = np.clip(pooled * 255, 0, 255).astype(np.uint8).repeat(side, 3).repeat(side, 4)
    framed = np.pad(large, [(0, 0), (0, 0), (0, 0), (0, gap), (0, gap)], constant_values=255)
    strips = np.concatenate(np.moveaxis(framed, 2, 0), axis=3)  # tubes, colours, rows, columns
    return np.concatenate(strips.transpose(0, 2, 3, 1), axis=0)[:-gap, :-gap]


def main() -> None:
    """Pool all tubes in one call, and find out which of them show the same action."""
    rng = np.random.default_rng(0)
    actions = [name for name in ACTIONS for _ in range(3)]
    rois = tubes(rng)
    video = film(rois, actions, rng)
    print(f"video: {video.shape}, {len(rois)} tubes of", end=" ")
    print(f"{np.ptp(rois[:, [3, 6]], axis=1).min():.1f} to", end=" ")
    print(f"{np.ptp(rois[:, [3, 6]], axis=1).max():.1f} seconds")

    # Adaptive sampling: a bin averages all pixels and frames that it covers.
    pooled = roipool.roi_align_3d(video, rois, BINS, SCALE)
    print("pooled:", pooled.shape)
    like = most_alike(pooled)
    right = sum(actions[number] == actions[other] for number, other in enumerate(like))
    print(f"most like another tube of the same action: {right} of {len(rois)}")
    if len(sys.argv) > 1:
        from PIL import Image

        Image.fromarray(picture(pooled[::3])).save(sys.argv[1])


if __name__ == "__main__":
    main()
