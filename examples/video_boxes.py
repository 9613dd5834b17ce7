"""Features along a track: an object's box in every frame of a video, pooled in one call.

    python examples/video_boxes.py

Frames are the batch. The detector's map of each frame is one image of it, a box is a row, and its
frame is its batch index: no loop over frames, and no copy of the maps.
"""

from __future__ import annotations

import numpy as np

import roipool

FRAMES, STRIDE, HEIGHT, WIDTH = 48, 8, 45, 80


def main() -> None:
    """Follow two objects, and find where their looks change."""
    rng = np.random.default_rng(0)
    time = np.linspace(0, 1, FRAMES, dtype=np.float32)

    # The boxes of two objects, x1, y1, x2, y2 in pixels: one moves right, one comes nearer.
    moving = np.stack([40 + 400 * time, 80 + 0 * time, 140 + 400 * time, 180 + 0 * time], axis=1)
    nearer = np.stack([400 - 80 * time, 200 - 60 * time, 440 + 80 * time, 240 + 60 * time], axis=1)
    boxes = np.concatenate([moving, nearer])
    frames = np.tile(np.arange(FRAMES), 2)

    # Maps of 16 channels: noise, and in channel 0 and 1 the two objects. The first one's looks
    # change after frame 30.
    maps = rng.normal(0, 0.1, (FRAMES, 16, HEIGHT, WIDTH)).astype(np.float32)
    for box, frame, channel in zip(boxes, frames, np.repeat([0, 1], FRAMES), strict=True):
        x1, y1, x2, y2 = np.rint(box / STRIDE).astype(int)
        maps[frame, channel, y1:y2, x1:x2] += 1 if frame < 30 or channel == 1 else 0.2

    # One call for all frames. Boxes that leave the picture need no care: what lies outside is 0.
    # Two samples per bin and axis, however large the box: a box that grows does not jump.
    features = roipool.roi_align(maps, boxes, 3, 1 / STRIDE, 2, batch_indices=frames)
    tracks = features.reshape(2, FRAMES, -1)
    print("features of each track:", tracks.shape)

    # How alike neighbouring frames of a track are.
    unit = tracks / np.linalg.norm(tracks, axis=2, keepdims=True)
    change = 1 - (unit[:, 1:] * unit[:, :-1]).sum(axis=2)
    for name, of_track in zip(("moving", "nearer"), change, strict=True):
        print(f"{name}: greatest change at frame {of_track.argmax() + 1}, {of_track.max():.2f}")

    # Bad boxes of a tracker that lost its object: NaN pools to 0, and no call fails because of it.
    boxes[5] = np.nan
    lost = roipool.roi_align(maps, boxes, 3, 1 / STRIDE, 2, batch_indices=frames)[5]
    print("a lost box pools to", lost.max())


if __name__ == "__main__":
    main()
