"""Compares with goldens: stored answers of other libraries' releases.

A folder of goldens holds the inputs of edge cases and the answers of several libraries; its README
names the releases. The systems in `roipool.systems` have an `Answer` for each golden. Selected
values (maxima, nearest cells, argmax) must agree bit for bit, sums within a few float32 ulps of the
largest value, since only the order of summation differs. A sample on the wrong side of a floor, a
ceil or the map's border causes a larger difference.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, NamedTuple

import numpy as np

from roipool.verification.tolerance import Array, Comparison, compare

Put = Callable[[Array], Any]
Get = Callable[[Any], Array]

FOLDER = files("roipool.verification") / "goldens"
ULPS = 8  # of float32, relative to the largest term
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


class Case:
    """One case: options, input arrays as attributes, and a library's answers by name.

    The inputs are `features` (N, C, H, W), `rois` (K, 5), `grad` (K, C, PH, PW), `boxes` (K, 4) as
    fractions; for MXNet also `ps_features` and `ps_grad`, with channels for every bin.
    """

    def __init__(
        self, record: Mapping[str, Any], inputs: Mapping[str, Array], answers: Mapping[str, Array]
    ) -> None:
        self.record = record
        self.number: int = record["id"]
        self.size: tuple[int, int] = tuple(record["output_size"])
        self.scale: float = record["spatial_scale"]
        self.sampling: int = record["sampling_ratio"]
        self.aligned: bool = record["aligned"]
        self.inputs = inputs
        self.answers = answers

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["inputs"][name]
        except KeyError:
            raise AttributeError(name) from None

    def on(self, put: Put) -> Case:
        """Return the case with its inputs copied to a device by `put`."""
        inputs = {name: put(array) for name, array in self.inputs.items()}
        return Case(self.record, inputs, self.answers)

    @property
    def images(self) -> Any:
        """The image of each box."""
        return self.rois[:, 0].astype(np.int64)


def cases(system: str, folder: Traversable = FOLDER) -> Iterator[Case]:
    """Yield the cases of a folder that have answers of a system."""
    prefix = f"{system}_" if system in OWN_INPUTS else ""
    inputs, answers = _arrays(folder, f"{prefix}inputs"), _arrays(folder, system)
    for record in json.loads((folder / f"{prefix}cases.json").read_text()):
        start = f"case{record['id']}_"
        yield Case(record, _of_case(inputs, start), _of_case(answers, start))


def _arrays(folder: Traversable, name: str) -> dict[str, Array]:
    with (folder / f"{name}.npz").open("rb") as stream, np.load(stream) as arrays:
        return dict(arrays)


def _of_case(arrays: dict[str, Array], start: str) -> dict[str, Array]:
    return {key.removeprefix(start): arrays[key] for key in arrays if key.startswith(start)}


class Answer(NamedTuple):
    """How to compute one of a system's answers, and how closely it must agree with the golden.

    `terms` returns the largest term of all sums or of each, if not the answer's largest value;
    `applies` returns whether a case can be computed.
    """

    system: str
    key: str
    compute: Callable[[Case], Any]
    exact: bool = False
    terms: Callable[[Case], Any] | None = None
    applies: Callable[[Case], bool] = lambda case: True

    def cases(self, folder: Traversable = FOLDER) -> Iterator[Case]:
        """Yield the cases of a folder that hold this answer."""
        for case in cases(self.system, folder):
            if self.key in case.answers and self.applies(case):
                yield case

    def compare(self, case: Case, put: Put, get: Get) -> Comparison:
        """Compute the answer and compare; `put` and `get` copy arrays to a device and back."""
        expected = case.answers[self.key].astype(np.float64)
        largest = self.terms(case) if self.terms else np.abs(expected).max(initial=0)
        got = get(self.compute(case.on(put)))
        return compare(got, expected, largest, 0 if self.exact else ULPS, roundings=0)
