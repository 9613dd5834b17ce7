"""Goldens: stored inputs, and the answers of other libraries' releases to them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from roipool.systems.case import Array

Results: TypeAlias = dict[str, Array]

# Systems with their own inputs: they reject or round some boxes, or take rotated boxes.
OWN_INPUTS = (
    "chainer_align",
    "chainer_max_pooling",
    "chainer_pooling",
    "mmcv_deform",
    "mmcv_prroi",
    "mmcv_riroi",
    "mmcv_rotated",
    "mxnet",
    "mxnet_rotated",
    "onnxruntime",
    "openvino",
    "openvino_upright",
    "paddle",
    "paddle_align",
)


@dataclass(frozen=True)
class Golden:
    """A call that releases have answered: options, input arrays as attributes, and answers by name.

    The inputs are `features` (N, C, H, W), `rois` (K, 5), `grad` (K, C, PH, PW), `boxes` (K, 4) as
    fractions; for MXNet also `ps_features` and `ps_grad`, with channels for every bin.
    """

    record: Mapping[str, Any]
    inputs: Mapping[str, Array]
    answers: Mapping[str, Array]

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["inputs"][name]
        except KeyError:
            raise AttributeError(name) from None

    @property
    def number(self) -> int:
        """The number of the call."""
        return int(self.record["id"])

    @property
    def size(self) -> tuple[int, int]:
        """Number of bins: rows, columns."""
        rows, columns = self.record["output_size"]
        return rows, columns

    @property
    def scale(self) -> float:
        """Map cells per image pixel."""
        return float(self.record["spatial_scale"])

    @property
    def sampling(self) -> Any:
        """Samples per bin: a number, or one for each axis."""
        return self.record["sampling_ratio"]

    @property
    def aligned(self) -> bool:
        """Whether boxes are aligned."""
        return bool(self.record["aligned"])


class Answer(NamedTuple):
    """A stored answer to a row's call, and how closely the row must agree."""

    # The file of answers, and the name of this one in it.
    file: str
    key: str
    # A result of `run`, or a function of them.
    result: str | Callable[[Results], Array] = "pooled"
    exact: bool = False  # whether results are equal bit for bit; others differ by the order of sums
    # Returns the largest term of all sums or of each, by the inputs; by default the largest value.
    terms: Callable[[Golden], Any] | None = None
    # Returns arguments besides the options that the inputs record.
    options: Callable[[Golden], dict[str, Any]] = lambda golden: {}
    # Names of the inputs.
    features: str = "features"
    grad: str = "grad"
    applies: Callable[[Golden], bool] = lambda golden: True  # whether the row can make the call

    def goldens(self, folder: Traversable) -> Iterator[Golden]:
        """Yield the calls of a folder that hold this answer."""
        for golden in goldens(self.file, folder):
            if self.key in golden.answers and self.applies(golden):
                yield golden


def goldens(file: str, folder: Traversable) -> Iterator[Golden]:
    """Yield the calls of a folder with the answers in a file."""
    prefix = f"{file}_" if file in OWN_INPUTS else ""
    inputs, answers = _arrays(folder, f"{prefix}inputs"), _arrays(folder, file)
    for record in json.loads((folder / f"{prefix}cases.json").read_text()):
        start = f"case{record['id']}_"
        # Numbers of options, unlike lists, are not arrays that go to a device.
        options = {key: tuple(of) if isinstance(of, list) else of for key, of in record.items()}
        yield Golden(options, _of_case(inputs, start), _of_case(answers, start))


def _arrays(folder: Traversable, name: str) -> dict[str, Array]:
    with (folder / f"{name}.npz").open("rb") as stream, np.load(stream) as arrays:
        return dict(arrays)


def _of_case(arrays: dict[str, Array], start: str) -> dict[str, Array]:
    return {key.removeprefix(start): arrays[key] for key in arrays if key.startswith(start)}


def largest_feature(golden: Golden) -> float:
    """Return the largest value of the features: where answers hold infinities or NaN."""
    return float(np.abs(golden.features).max())
