"""Features of boxes for many pictures by Ray Data: actors that hold a model and pool by roipool.

``python examples/ray_features.py`` makes pictures with boxes, computes the features of each box on
two actors, and compares them with those of this process. Ray tells an actor how many processors it
has by OMP_NUM_THREADS, which roipool and torch obey.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import ray
import torch

import roipool.torch

PICTURES = 12


def picture(number: int) -> dict[str, Any]:
    """Return a picture, and its boxes, as many as it has."""
    rng = np.random.default_rng(number)
    first = rng.uniform(0, 30, (number % 4, 2))
    boxes = np.concatenate([first, first + rng.uniform(4, 30, first.shape)], axis=1)
    return {
        "number": number,
        "image": rng.normal(size=(3, 64, 64)).astype(np.float32),
        "boxes": boxes.astype(np.float32),
    }


class Features:
    """A layer of a network, and ROI align: one for each actor."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.layer = torch.nn.Conv2d(3, 8, 3, stride=2, padding=1).eval()

    @torch.no_grad()
    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Return the features of the boxes of some pictures, which are pooled in one call."""
        maps = self.layer(torch.tensor(np.stack(list(batch["image"]))))
        boxes = [torch.tensor(np.asarray(each)).reshape(-1, 4) for each in batch["boxes"]]
        pooled = roipool.roi_align(maps, boxes, 3, spatial_scale=1 / 2, sampling_ratio=2)
        counts = [len(each) for each in boxes]
        return {
            "picture": np.repeat(batch["number"], counts),
            "features": pooled.flatten(1).numpy(),
        }


def main() -> None:
    """Compare the actors' features with this process's."""
    pictures = [picture(number) for number in range(PICTURES)]
    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    found = ray.data.from_items(pictures).map_batches(
        Features, batch_size=4, num_cpus=0.5, compute=ray.data.ActorPoolStrategy(size=2)
    )
    rows = sorted(found.take_all(), key=lambda row: int(row["picture"]))
    ray.shutdown()
    here = Features()({key: [each[key] for each in pictures] for key in pictures[0]})
    features = np.stack([row["features"] for row in rows])
    difference = float(np.abs(features - here["features"]).max())
    same = [int(row["picture"]) for row in rows] == here["picture"].tolist()
    print(f"{len(rows)} boxes, at most {difference:.1e} from this process's, in order: {same}")
    if difference > 1e-5 or not same:
        raise SystemExit("other features")


if __name__ == "__main__":
    main()
