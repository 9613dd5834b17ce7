"""The groups of comparisons that make up a verification."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np

import roipool
from roipool import _cpu
from roipool.systems import ANSWERS
from roipool.systems.core import VARIANTS
from roipool.verification.released import Answer
from roipool.verification.tolerance import Comparison

from .case import LAYOUTS, STORAGES, Case
from .catalogue import ENTRIES, Entry, large_entry
from .check import CALL, ORACLE, check, subjects
from .device import Device, device
from .generate import draw

RANDOM_CALLS = 300  # a few seconds
FORMS_OF_A_CASE = 2  # types and layouts in which a case of the catalogue is computed, by chance
# What is verified on a GPU at first: every operation, in kernels that are compiled in seconds.
FIRST_TYPE, FIRST_LAYOUT = "float32", "NCHW"
FIRST_CHANNELS = 4  # or more: fewer have kernels of their own


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

    def closed(self) -> Tally:
        """Return the tally; to compare nothing is a problem."""
        if not self.count:
            self.problems.append("nothing was compared")
        return self


class Check(NamedTuple):
    """A call, its name, and what it is compared with."""

    what: str
    case: Case
    subjects: tuple[str, ...]


Engines: TypeAlias = Mapping[str, str]  # instruction sets, by names that start those of groups


def verify(
    backends: Sequence[str],
    seed: int = 0,
    *,
    entries: Sequence[Entry] = tuple(ENTRIES),
    library: Any = roipool,
    everything: bool = True,
) -> Iterator[Tally]:
    """Run every group, and yield each when it is done.

    Parameters
    ----------
    backends : sequence of str
        "cpu", "cuda" or both.
    seed : int
        Of the random calls, and of what the catalogue's calls leave open.
    entries : sequence of Entry
        Of the catalogue.
    library : module
        What is verified: `roipool`, or an object with functions of the same names.
    everything : bool
        False: of a GPU only what needs few kernels.

    Yields
    ------
    Tally
        An exception in the middle of a group is one of its problems.
    """
    for backend in backends:
        place = device(backend, library)
        if backend == "cpu":
            yield from _on_cpu(place, seed, entries)
        else:
            yield from _on_gpu(place, seed, entries, everything)


def _on_cpu(cpu: Device, seed: int, entries: Sequence[Entry]) -> Iterator[Tally]:
    engines = {f"cpu {name}": name for name in _cpu.instruction_sets()}
    for name, instruction_set in engines.items():
        with _using(instruction_set):
            yield against_programs(cpu, f"{name}: released programs")
    threads = roipool.get_num_threads()
    yield from tallies(catalogue_calls(entries, cpu.types, seed), cpu, engines)
    yield from tallies(random_calls(seed), cpu, engines, "random calls")
    yield from tallies(large_calls(seed, cpu.types, threads, ("threads", "again")), cpu)


def _on_gpu(gpu: Device, seed: int, entries: Sequence[Entry], everything: bool) -> Iterator[Tally]:
    types: tuple[str, ...] = gpu.types
    layouts: tuple[str, ...] = LAYOUTS
    if everything:
        yield against_programs(gpu, f"{gpu.name}: released programs")
        yield from tallies(catalogue_calls(entries, types, seed), gpu)
        yield from tallies(plain_random_calls(seed, types), gpu, what="random calls")
    else:
        # A kernel is compiled for each type, layout and definition, which takes half a second.
        types, layouts = (FIRST_TYPE,), (FIRST_LAYOUT,)
        calls = catalogue_calls(entries, types, seed, layouts, FIRST_CHANNELS)
        yield from tallies(calls, gpu)
    yield from tallies(large_calls(seed, types, 1, ("again",), layouts), gpu)


# ---- Calls


def catalogue_calls(
    entries: Iterable[Entry],
    types: Sequence[str],
    seed: int,
    layouts: Sequence[str] = LAYOUTS,
    channels: int = 1,
) -> Iterator[Check]:
    """Yield for every operation a call of each entry of the catalogue, in some types and layouts.

    Maps with fewer channels, if they have any, are repeated until they have so many.
    """
    rng = np.random.default_rng(seed)
    for entry, name in itertools.product(entries, VARIANTS):
        if not (found := list(entry.cases(name))):
            continue
        what, case = found[rng.integers(len(found))]
        own = case.maps.shape[1]
        if 0 < own < channels:
            repeated = np.arange(channels) % own
            case = replace(case, maps=case.maps[:, repeated], grad=case.grad[:, repeated])
        for dtype, layout in _forms(rng, types, layouts):
            own_form = replace(case, dtype=dtype, layout=layout)
            with_what = (CALL, ORACLE, "transposes")
            yield Check(f"{name}, {dtype} {layout}, {what}", own_form, with_what)


def _forms(
    rng: np.random.Generator, types: Sequence[str], layouts: Sequence[str]
) -> list[tuple[str, str]]:
    """Return some types and layouts for which the oracle's answers are the same."""
    every = [(dtype, layout) for dtype in types for layout in layouts]
    first = every[rng.integers(len(every))][0]
    same = [form for form in every if (form[0] == "float64") == (first == "float64")]
    return [same[place] for place in rng.permutation(len(same))[:FORMS_OF_A_CASE]]


def random_calls(seed: int, count: int = RANDOM_CALLS) -> Iterator[Check]:
    """Yield the first random calls of a seed."""
    for number in range(count):
        case = draw(seed, number)
        yield Check(f"call {number}, {case.operation}", case, subjects(case, number))


def plain_random_calls(
    seed: int, types: Sequence[str], count: int = RANDOM_CALLS
) -> Iterator[Check]:
    """Yield random calls of the core's operations, as a device takes arrays."""
    for number in range(count):
        case = replace(
            draw(seed, number, tuple(VARIANTS), dtype=types[number % len(types)]),
            storage=next(iter(STORAGES)),
            out="new",
            form="table",
            threads=1,
        )
        with_what = tuple(one for one in subjects(case, number) if one in (CALL, ORACLE))
        yield Check(f"call {number}, {case.operation}", case, (*with_what, "transposes"))


def large_calls(
    seed: int,
    types: Sequence[str],
    threads: int,
    with_what: tuple[str, ...],
    layouts: Sequence[str] = LAYOUTS,
) -> Iterator[Check]:
    """Yield a call of every operation, type and layout with work for several threads."""
    entry = large_entry(np.random.default_rng(seed), threads)
    for name, dtype, layout in itertools.product(VARIANTS, types, layouts):
        for _, case in entry.cases(name, most_work=math.inf):
            case = replace(case, dtype=dtype, layout=layout, threads=threads)
            yield Check(f"{name}, {dtype} {layout}", case, with_what)


# ---- Comparisons

# The groups that comparisons count in, by what they are with.
GROUPS = {
    CALL: "oracle",
    ORACLE: "oracle",
    "transposes": "transposes",
    "threads": "any number of threads",
    "again": "the same again",
}


def tallies(
    calls: Iterable[Check], place: Device, engines: Engines | None = None, what: str = ""
) -> list[Tally]:
    """Make calls on each of some instruction sets, compare, and count.

    Parameters
    ----------
    calls : iterable of Check
        The calls.
    place : Device
        Where to compute.
    engines : mapping, optional
        The instruction sets by name; by default the one in use, with the name of the device.
    what : str
        The name of the only group; by default there is one for each row of `GROUPS`.
    """
    engines = engines or {place.name: _cpu.instruction_set()}
    found: dict[tuple[str, str], Tally] = {}
    for call in calls:
        for subject, name in itertools.product(call.subjects, engines):
            group = what or GROUPS[subject]
            found.setdefault((group, name), Tally(f"{name}: {group}"))
        for name, instruction_set in engines.items():
            with _using(instruction_set):
                for one in check(call.case, call.subjects, place.library):
                    group = what or GROUPS.get(one.subject, "oracle")
                    text = f"{call.what}, {one.subject}, {one.what}"
                    found[group, name].add(text, one.comparison)
    return [tally.closed() for tally in found.values()]


@contextlib.contextmanager
def _using(instruction_set: str) -> Iterator[None]:
    before = _cpu.instruction_set()
    _cpu.use_instruction_set(instruction_set)
    try:
        yield
    finally:
        _cpu.use_instruction_set(before)


def against_programs(place: Device, name: str, programs: Mapping[str, Answer] = ANSWERS) -> Tally:
    """Compare compat with what the programs answered, as far as the package has it."""
    tally = Tally(name)
    try:
        for program, answer in programs.items():
            for case in answer.cases():
                found = answer.compare(case, place.put, place.get)
                tally.add(f"{program}, case {case.number}", found)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is this installation's fault
        tally.problems.append(f"{type(error).__name__}: {' '.join(str(error).split())}")
    return tally.closed()
