"""Nodules of a lung scan, told from vessels: boxes of a volume, pooled, trained on and moved.

    python examples/lung_nodules.py [PICTURE]

The scan is made up: balls are nodules, rods vessels, and slices are farther apart than pixels. A
classifier of the pooled boxes is trained, and with it the filter before the pooling. Then the
gradient of the boxes moves one that lies beside its nodule. With a name, and Pillow, it writes a
picture of slices before and after.
"""

from __future__ import annotations

import sys

import numpy as np

import roipool

SPACING = np.array([2.5, 0.75, 0.75])  # mm between slices, rows and columns
SHAPE = (40, 128, 128)
SCALE = tuple(1 / SPACING)  # cells per mm, along depth, rows and columns
BINS = (3, 7, 7)
SIDE = 12.0  # of a box, in mm


def scan(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a volume (1, 1, D, H, W), the middles of candidates (K, 3) in mm, and the nodules."""
    volume = rng.normal(0, 0.35, SHAPE)
    z, y, x = np.moveaxis((np.indices(SHAPE).T + 0.5) * SPACING, -1, 0).transpose(0, 3, 2, 1)
    places = np.stack(np.meshgrid([18, 50, 82], [16, 48, 80], [16, 48, 80], indexing="ij"), -1)
    middles = places.reshape(-1, 3) + rng.uniform(-2, 2, (27, 3))
    is_nodule = rng.permutation(27) < 13
    for (mz, my, mx), nodule in zip(middles, is_nodule, strict=True):
        offset = np.stack([z - mz, y - my, x - mx])
        if not nodule:  # a vessel reaches on along one direction
            direction = rng.normal(size=3)
            direction /= np.linalg.norm(direction)
            offset -= np.tensordot(direction, offset, 1) * direction[:, None, None, None]
        distance = np.sqrt((offset**2).sum(0))
        near = np.sqrt((z - mz) ** 2 + (y - my) ** 2 + (x - mx) ** 2) < 14
        volume += near * np.exp(-((distance / rng.uniform(2.2, 3.2)) ** 2))
    return volume[None, None].astype(np.float32), middles, is_nodule


def boxes_about(middles: np.ndarray) -> np.ndarray:
    """Return boxes (K, 7): image, x1, y1, z1, x2, y2, z2 in mm."""
    corners = [middles[:, ::-1] + sign * SIDE / 2 for sign in (-1, 1)]
    return np.concatenate([np.zeros((len(middles), 1)), *corners], axis=1).astype(np.float32)


def train(volume: np.ndarray, rois: np.ndarray, labels: np.ndarray, steps: int = 60) -> np.ndarray:
    """Train a gain and a bias of the volume, and a linear classifier of the pooled boxes."""
    gain, bias, weights = np.float32(0.5), np.float32(0), np.zeros(np.prod(BINS), np.float32)
    for step in range(steps):
        before = gain * volume + bias
        features = np.tanh(before)
        pooled = roipool.roi_align_3d(features, rois, BINS, SCALE, sampling_ratio=2)
        flat = pooled.reshape(len(rois), -1)
        chance = 1 / (1 + np.exp(-(flat @ weights - 1)))
        if step % 20 == 0 or step == steps - 1:
            loss = -np.log(np.where(labels, chance, 1 - chance)).mean()
            print(f"step {step:2}: loss {loss:.2f}, {(chance > 0.5).sum()} called nodules")
        error = (chance - labels) / len(rois)
        upstream = np.outer(error, weights).reshape(pooled.shape).astype(np.float32)
        by_features = roipool.roi_align_3d_backward(
            upstream, rois, volume.shape, SCALE, sampling_ratio=2
        )
        by_sums = by_features * (1 - features**2)
        weights -= 0.4 * (error @ flat).astype(np.float32)
        gain -= 0.2 * (by_sums * volume).sum()
        bias -= 0.2 * by_sums.sum()
    return chance > 0.5


def centred(volume: np.ndarray, rois: np.ndarray, steps: int = 60) -> np.ndarray:
    """Move boxes to where their inner bins are brightest, by the gradient of the boxes."""
    wanted = -np.ones((len(rois), 1, *BINS), np.float32)
    wanted[:, :, 1, 2:5, 2:5] = 147 / 9 - 1  # the middle, against all
    moved = rois.copy()
    for step in range(steps):
        slopes = roipool.roi_align_3d_backward_rois(wanted, volume, moved, SCALE, sampling_ratio=2)
        shift = (slopes[:, :3] + slopes[:, 3:]) / 2
        length = np.linalg.norm(shift, axis=1, keepdims=True)
        moved[:, 1:] += np.tile(0.4 * 0.97**step * shift / length, 2)
    return moved


def picture(volume: np.ndarray, before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Return the slice through a box, and the box as it is pooled, before and after it moved."""
    _, x1, y1, z1, x2, y2, z2 = before
    middle, margin = int((z1 + z2) / 2 / SPACING[0]), 10
    (top, left), (bottom, right) = (
        np.int64(corner / SPACING[1:]) for corner in ((y1, x1), (y2, x2))
    )
    window = np.s_[max(top - margin, 0) : bottom + margin, max(left - margin, 0) : right + margin]
    parts = [volume[0, 0, middle][window]]
    for box in (before, after):
        pooled = roipool.roi_align_3d(volume, box[None], (3, 16, 16), SCALE)[0, 0]
        parts.append(np.concatenate(pooled, axis=1))
    height = 160
    shown = []
    for part in parts:
        times = max(1, height // len(part))
        large = part.repeat(times, 0).repeat(times, 1)
        shown.append(np.pad(large, ((0, height - len(large)), (0, 6)), constant_values=1.4))
    return np.uint8(np.clip((np.concatenate(shown, axis=1) + 0.6) / 2 * 255, 0, 255))


def main() -> None:
    """Train, and move a box."""
    volume, middles, labels = scan(np.random.default_rng(0))
    rois = boxes_about(middles)
    print(f"scan: {volume.shape}, {len(rois)} candidates, {labels.sum()} of them nodules")
    right = train(volume, rois, labels) == labels
    print(f"right: {right.sum()} of {len(rois)}")

    nodules = middles[labels]
    rng = np.random.default_rng(1)
    beside = boxes_about(nodules + rng.uniform(-3, 3, nodules.shape))
    moved = centred(volume, beside)
    for name, boxes in (("beside", beside), ("moved", moved)):
        distance = np.linalg.norm((boxes[:, 1:4] + boxes[:, 4:]) / 2 - nodules[:, ::-1], axis=1)
        print(f"{name}: {np.median(distance):.1f} mm from the middle")
    if len(sys.argv) > 1:
        from PIL import Image

        Image.fromarray(picture(volume, beside[0], moved[0])).save(sys.argv[1])


if __name__ == "__main__":
    main()
