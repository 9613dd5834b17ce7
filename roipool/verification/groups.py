"""The groups of comparisons that make up a verification."""

from __future__ import annotations

import contextlib
import importlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

import roipool
from roipool import _cpu
from roipool.systems import ANSWERS
from roipool.verification import check as differential
from roipool.verification.released import Answer, Get, Put
from roipool.verification.tolerance import Array, Comparison, compare, compare_bits, compute_type
from roipool.verification.trials import (
    SAMPLE_ARGMAX,
    Answers,
    Trial,
    answers,
    argmax_of,
    as_it_is,
    exact_answers,
    large_trial,
    trials,
    ulps_of,
)

LAYOUTS = ("NCHW", "NHWC")
# Of <f(x), g> = <x, gradient>: each side has the roundings of one operation.
ULPS_OF_TRANSPOSE = 8
RANDOM_CALLS = 300  # a few seconds
# What is verified on a GPU at first: every operation, in kernels that are compiled in seconds.
FIRST_TYPE, FIRST_LAYOUT = "float32", "NCHW"
FIRST_CHANNELS = 4  # or more: fewer have kernels of their own


class Device(NamedTuple):
    """Where to compute, and with what.

    Attributes
    ----------
    name : str
        For people.
    put, get : callable
        Bring arrays there and back.
    types : dict
        The types that it has, by name.
    library : module
        What is verified: `roipool`, or an object with functions of the same names.
    layouts : sequence of str
        Those to compute in.
    """

    name: str
    put: Put
    get: Get
    types: dict[str, np.dtype[Any]]
    library: Any = roipool
    layouts: Sequence[str] = LAYOUTS


@dataclass
class Tally:
    """What a group of comparisons found.

    Attributes
    ----------
    name : str
        Where it was computed, and what it was compared with.
    count : int
        How many numbers were compared.
    worst : float
        The greatest error, as a part of what is allowed.
    problems : list of str
        One line for each comparison that failed; the group is right if there is none.
    """

    name: str
    count: int = 0
    worst: float = 0.0
    problems: list[str] = field(default_factory=list)

    def add(self, what: str, found: Comparison) -> None:
        """Count one comparison."""
        self.count += found.count
        self.worst = max(self.worst, found.worst)
        if found.problem:
            self.problems.append(f"{what}: {found.problem}")


Comparisons = Iterator[tuple[str, Comparison]]
Known = Sequence[tuple[Trial, Mapping[Any, tuple[Answers, Answers]]]]


class Inputs(NamedTuple):
    """What operations compute on: small trials with the oracle's answers, and a large one."""

    known: Known
    large: Trial


def device(backend: str, library: Any = roipool) -> Device:
    """Return the device of "cpu" or "cuda"."""
    if backend == "cpu":
        return Device(backend, as_it_is, np.asarray, _float_types(as_it_is), library)
    cupy = importlib.import_module("cupy")
    return Device(backend, cupy.asarray, cupy.asnumpy, _float_types(cupy.asarray), library)


def _float_types(put: Put) -> dict[str, np.dtype[Any]]:
    """Return the supported types; bfloat16 needs ml_dtypes, and CuPy 14 on a GPU."""
    names = {name: np.dtype(name) for name in ("float16", "float32", "float64")}
    with contextlib.suppress(ModuleNotFoundError, TypeError, ValueError):
        bfloat16 = np.dtype(importlib.import_module("ml_dtypes").bfloat16)
        put(np.zeros(1, bfloat16))
        names["bfloat16"] = bfloat16
    return names


def with_answers(some: Iterable[Trial]) -> Known:
    """Return trials with the oracle's answers, by type of coordinates."""
    return [
        (trial, {real: exact_answers(trial, real) for real in (np.float32, np.float64)})
        for trial in some
    ]


def random_inputs(seed: int) -> Inputs:
    """Return the inputs of a seed."""
    rng = np.random.default_rng(seed)
    return Inputs(with_answers(trials(rng)), large_trial(rng, roipool.get_num_threads()))


def verify(
    backends: Sequence[str],
    seed: int = 0,
    *,
    inputs: Inputs | None = None,
    library: Any = roipool,
    everything: bool = True,
) -> Iterator[Tally]:
    """Run every group, and yield each when it is done.

    Parameters
    ----------
    backends : sequence of str
        "cpu", "cuda" or both.
    seed : int
        Of the random trials and calls.
    inputs : Inputs, optional
        By default those of the seed.
    library : module
        What is verified: `roipool`, or an object with functions of the same names.
    everything : bool
        False: of a GPU only what needs few kernels, `first_pass`.

    Yields
    ------
    Tally
        An exception in the middle of a group is one of its problems.
    """
    known, large = random_inputs(seed) if inputs is None else inputs
    for backend in backends:
        place = device(backend, library)
        if backend == "cpu":
            yield from _on_every_instruction_set(place, known)
            yield tally_of("cpu: any number of threads", same_for_threads, place, large)
            yield tally_of(
                "cpu: random calls", differential.random_calls, seed, RANDOM_CALLS, library
            )
        elif everything:
            yield from _against_others(place, known)
        else:
            place, few = first_pass(place, known)
            yield from _by_oracle(place, few)
        yield tally_of(f"{backend}: the same again", same_again, place, large)


def first_pass(device: Device, known: Known) -> tuple[Device, Known]:
    """Return the type, layout and trials for which a GPU needs few kernels to be compiled.

    A kernel is compiled for each type, layout and definition, which takes half a second.
    """
    types = {FIRST_TYPE: device.types[FIRST_TYPE]}
    few = [one for one in known if one[0].maps.shape[1] >= FIRST_CHANNELS]
    return device._replace(types=types, layouts=(FIRST_LAYOUT,)), few


def _on_every_instruction_set(cpu: Device, known: Known) -> Iterator[Tally]:
    chosen = _cpu.instruction_set()
    try:
        for name in _cpu.instruction_sets():
            _cpu.use_instruction_set(name)
            yield from _against_others(cpu._replace(name=f"cpu {name}"), known)
    finally:
        _cpu.use_instruction_set(chosen)


def _against_others(device: Device, known: Known) -> Iterator[Tally]:
    yield tally_of(f"{device.name}: released programs", against_programs, device)
    yield from _by_oracle(device, known)


def _by_oracle(device: Device, known: Known) -> Iterator[Tally]:
    yield tally_of(f"{device.name}: oracle", against_oracle, device, known)
    yield tally_of(f"{device.name}: transposes", against_transposes, device, known)


def tally_of(name: str, compared: Callable[..., Comparisons], *arguments: Any) -> Tally:
    """Count a group's comparisons; an exception is a problem, and so is to compare nothing."""
    tally = Tally(name)
    try:
        for what, found in compared(*arguments):
            tally.add(what, found)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is this installation's fault
        tally.problems.append(f"{type(error).__name__}: {' '.join(str(error).split())}")
    if not tally.count:
        tally.problems.append("nothing was compared")
    return tally


def against_programs(device: Device, programs: Mapping[str, Answer] = ANSWERS) -> Comparisons:
    """Compare compat with what the programs answered, as far as the package has it."""
    for name, answer in programs.items():
        for case in answer.cases():
            yield f"{name}, case {case.number}", answer.compare(case, device.put, device.get)


def against_oracle(device: Device, known: Known) -> Comparisons:
    """Compare every operation in every type and layout with the oracle."""
    for (trial, by_type), (dtype_name, dtype), layout in _combinations(device, known):
        exact, terms = by_type[compute_type(dtype)]
        got = compute(device, trial, dtype, layout, argmax_of(exact))
        for name, result in got.items():
            if name in SAMPLE_ARGMAX and not trial.exact:
                continue  # transposes tell whether they are right
            yield (
                f"{name}, {dtype_name} {layout}, {trial.name}",
                compare(result, np.asarray(exact[name], np.float64), terms[name], ulps_of(name)),
            )


def against_transposes(device: Device, known: Known) -> Comparisons:
    """Compare <f(x), g> with <x, gradient of f at g>; for a maximum, with its own argmax."""
    for (trial, _), (dtype_name, dtype), layout in _combinations(device, known):
        if dtype.itemsize == 2 or not np.isfinite(trial.maps).all():
            continue  # half types round each result once more
        got = compute(device, trial, dtype, layout, outside=0.0)
        sizes_of = trial.absolute()
        sizes = compute(device, sizes_of, dtype, layout, argmax_of(got), outside=0.0)
        for name, values in got.items():
            gradient = got.get(f"{name} gradient")
            if gradient is not None:
                forward = products_by_image(values, trial)
                backward = products(trial.maps, gradient)
                terms = products(sizes_of.maps, sizes[f"{name} gradient"])
                yield (
                    f"{name}, {dtype_name} {layout}, {trial.name}",
                    compare(forward.astype(dtype), backward, terms, ULPS_OF_TRANSPOSE),
                )


def products(maps: Array, gradient: Array) -> Array:
    """Return <maps, gradient> for each image and channel, in float64."""
    return (maps * gradient.astype(np.float64)).sum(axis=(2, 3))


def products_by_image(pooled: Array, trial: Trial) -> Array:
    """Return <pooled, trial.grad> for each image and channel, in float64."""
    total = np.zeros(trial.maps.shape[:2])
    np.add.at(total, trial.images, products(trial.grad, pooled))
    return total


def same_for_threads(device: Device, trial: Trial) -> Comparisons:
    """Compare the bits that different numbers of threads give."""
    library = device.library
    before = library.get_num_threads()
    try:
        for dtype_name, dtype, layout in _types_and_layouts(device):
            library.set_num_threads(1)
            expected = compute(device, trial, dtype, layout)
            for threads in sorted({2, 3, before}):
                library.set_num_threads(threads)
                got = compute(device, trial, dtype, layout)
                for name, result in got.items():
                    what = f"{name}, {dtype_name} {layout}, {threads} threads"
                    yield what, compare_bits(result, expected[name])
    finally:
        library.set_num_threads(before)


def same_again(device: Device, trial: Trial) -> Comparisons:
    """Compare the bits of results that are computed twice."""
    for dtype_name, dtype, layout in _types_and_layouts(device):
        expected = compute(device, trial, dtype, layout)
        for name, result in compute(device, trial, dtype, layout).items():
            yield f"{name}, {dtype_name} {layout}", compare_bits(result, expected[name])


def compute(
    device: Device,
    trial: Trial,
    dtype: np.dtype[Any],
    layout: str,
    argmax: Mapping[str, Any] | None = None,
    outside: float = 0.5,
) -> Answers:
    """Return the library's answers as NumPy arrays in NCHW; `argmax` by variant is NCHW too."""

    def put(array: Any) -> Any:
        return device.put(in_layout(array, layout))

    found = answers(
        device.library, trial, put(trial.maps.astype(dtype)), put(trial.grad.astype(dtype)),
        put=device.put, argmax={name: put(array) for name, array in (argmax or {}).items()},
        outside=outside, layout=layout,
    )  # fmt: skip
    return {name: to_nchw(device.get(result), layout) for name, result in found.items()}


def in_layout(array: Any, layout: str) -> Any:
    """Return an NCHW array in `layout`, contiguous."""
    return np.ascontiguousarray(np.moveaxis(array, 1, -1) if layout == "NHWC" else array)


def to_nchw(array: Any, layout: str) -> Any:
    """Return an array of `layout` as NCHW; gradients of boxes have no layout."""
    return np.moveaxis(array, -1, 1) if layout == "NHWC" and array.ndim == 4 else array


def _types_and_layouts(device: Device) -> Iterator[tuple[str, np.dtype[Any], str]]:
    for (name, dtype), layout in itertools.product(device.types.items(), device.layouts):
        yield name, dtype, layout


def _combinations(device: Device, known: Known) -> Iterator[Any]:
    return itertools.product(known, device.types.items(), device.layouts)
