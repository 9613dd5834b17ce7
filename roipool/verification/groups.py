"""The groups of comparisons of ``roipool verify``."""

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
from roipool.systems.case import LAYOUTS, STORAGES, Case, with_channels
from roipool.systems.core import OPERATIONS
from roipool.systems.masks import OF_CORE
from roipool.verification.released import FOLDER, PROGRAMS, ReleasedProgram
from roipool.verification.tolerance import Comparison

from .catalogue import ENTRIES, Entry, large_entry, tall_entry
from .check import CALL, ORACLE, check, subjects
from .device import Device, device
from .generate import draw

RANDOM_CALLS = 300  # a few seconds
FORMS_OF_A_CASE = 2  # pairs of type and layout drawn for each case of the catalogue
# The quick verification of a GPU: every operation, with kernels that compile in seconds.
FIRST_TYPE, FIRST_LAYOUT = "float32", "NCHW"
FIRST_CHANNELS = 4  # at least: fewer channels have kernels of their own


@dataclass
class Tally:
    """The outcome of a group of comparisons."""

    name: str  # the device or instruction set, and the reference
    count: int = 0  # number of numbers compared
    worst: float = 0.0  # the largest error, as a fraction of the tolerance
    # One line for each comparison that failed; empty if the group passed.
    problems: list[str] = field(default_factory=list)

    def add(self, what: str, comparison: Comparison) -> None:
        """Add one comparison."""
        self.count += comparison.count
        self.worst = max(self.worst, comparison.worst)
        if comparison.problem:
            self.problems.append(f"{what}: {comparison.problem}")

    def closed(self) -> Tally:
        """Return the tally; comparing nothing is a problem."""
        if not self.count:
            self.problems.append("nothing was compared")
        return self


class Check(NamedTuple):
    """A call, its name, and the subjects to compare it with."""

    what: str
    case: Case
    subjects: tuple[str, ...]


Engines: TypeAlias = Mapping[str, str]  # prefix of the groups' names -> instruction set


def verify(
    backends: Sequence[str],
    seed: int = 0,
    *,
    entries: Sequence[Entry] = tuple(ENTRIES),
    library: Any = roipool,
    everything: bool = True,
) -> Iterator[Tally]:
    """Run all groups; yield the tally of each as soon as it is complete.

    Parameters
    ----------
    backends : sequence of str
        "cpu", "cuda" or both.
    seed : int
        Seed of the random calls and of the options drawn for the catalogue's calls.
    library : module
        The library to verify: `roipool`, or an object with functions of the same names.
    everything : bool
        If False, a GPU is only verified with calls that need few kernels.

    Yields
    ------
    Tally
        An exception within a group is one of its problems.
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
    rng = np.random.default_rng(seed)
    large = large_entry(rng, threads), tall_entry(rng)
    yield from tallies(large_calls(large, cpu.types, threads, ("threads", "again")), cpu)


def _on_gpu(gpu: Device, seed: int, entries: Sequence[Entry], everything: bool) -> Iterator[Tally]:
    types: tuple[str, ...] = gpu.types
    layouts: tuple[str, ...] = LAYOUTS
    if everything:
        yield against_programs(gpu, f"{gpu.name}: released programs")
        yield from tallies(catalogue_calls(entries, types, seed), gpu)
        yield from tallies(plain_random_calls(seed, types), gpu, what="random calls")
    else:
        # Each type, layout and definition needs a kernel, which takes half a second to compile.
        types, layouts = (FIRST_TYPE,), (FIRST_LAYOUT,)
        calls = catalogue_calls(entries, types, seed, layouts, FIRST_CHANNELS)
        yield from tallies(calls, gpu)
    large = [large_entry(np.random.default_rng(seed))]
    yield from tallies(large_calls(large, types, 1, ("again",), layouts), gpu)


# ---- Calls


def catalogue_calls(
    entries: Iterable[Entry],
    types: Sequence[str],
    seed: int,
    layouts: Sequence[str] = LAYOUTS,
    channels: int = 1,
) -> Iterator[Check]:
    """Yield calls of every operation for each entry, in some types and layouts.

    Maps with fewer than `channels` channels, unless they have none, are repeated up to that number.
    """
    rng = np.random.default_rng(seed)
    for entry, name in itertools.product(entries, OPERATIONS):
        if not (named_cases := list(entry.cases(name))):
            continue
        what, case = named_cases[rng.integers(len(named_cases))]
        own = case.grad.shape[1]
        if 0 < own < channels:
            case = with_channels(case, np.arange(channels) % own)
        for dtype, layout in _forms(rng, types, layouts):
            in_form = replace(case, dtype=dtype, layout=layout)
            with_what = (CALL, ORACLE, "transposes")
            yield Check(f"{name}, {dtype} {layout}, {what}", in_form, with_what)


def _forms(
    rng: np.random.Generator, types: Sequence[str], layouts: Sequence[str]
) -> list[tuple[str, str]]:
    """Draw pairs of type and layout for which the oracle computes the same answers."""
    forms = [(dtype, layout) for dtype in types for layout in layouts]
    first = forms[rng.integers(len(forms))][0]
    same = [form for form in forms if (form[0] == "float64") == (first == "float64")]
    return [same[index] for index in rng.permutation(len(same))[:FORMS_OF_A_CASE]]


def random_calls(seed: int, count: int = RANDOM_CALLS) -> Iterator[Check]:
    """Yield the first random calls of a seed."""
    for number in range(count):
        case = draw(seed, number)
        yield Check(f"call {number}, {case.operation}", case, subjects(case, number))


def plain_random_calls(
    seed: int, types: Sequence[str], count: int = RANDOM_CALLS
) -> Iterator[Check]:
    """Yield random calls of the core's operations, with arrays in the layout of a device."""
    for number in range(count):
        case = replace(
            draw(seed, number, (*OPERATIONS, *OF_CORE), dtype=types[number % len(types)]),
            storage=next(iter(STORAGES)),
            out="new",
            form="table",
            threads=1,
        )
        with_what = tuple(name for name in subjects(case, number) if name in (CALL, ORACLE))
        yield Check(f"call {number}, {case.operation}", case, (*with_what, "transposes"))


def large_calls(
    entries: Iterable[Entry],
    types: Sequence[str],
    threads: int,
    with_what: tuple[str, ...],
    layouts: Sequence[str] = LAYOUTS,
) -> Iterator[Check]:
    """Yield a call with work for several threads, for every operation, type and layout."""
    for entry, name, dtype, layout in itertools.product(entries, OPERATIONS, types, layouts):
        for _, case in entry.cases(name, most_work=math.inf):
            case = replace(case, dtype=dtype, layout=layout, threads=threads)
            yield Check(f"{name}, {entry}, {dtype} {layout}", case, with_what)


# ---- Comparisons

# The name of the group to which the comparisons of each subject belong.
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
    """Make calls on each of several instruction sets, and tally the comparisons.

    Parameters
    ----------
    engines : mapping, optional
        Instruction sets by name; by default the current one, named after the device.
    what : str
        Name of a single group for all comparisons; by default one group per value of `GROUPS`.
    """
    engines = engines or {place.name: _cpu.instruction_set()}
    groups: dict[tuple[str, str], Tally] = {}
    for call in calls:
        for subject, name in itertools.product(call.subjects, engines):
            group = what or GROUPS[subject]
            groups.setdefault((group, name), Tally(f"{name}: {group}"))
        for name, instruction_set in engines.items():
            with _using(instruction_set):
                for finding in check(call.case, call.subjects, place.library):
                    is_one = finding.subject in call.subjects  # an exception may be none
                    group = what or GROUPS[finding.subject if is_one else call.subjects[0]]
                    text = f"{call.what}, {finding.subject}, {finding.what}"
                    groups[group, name].add(text, finding.comparison)
    return [tally.closed() for tally in groups.values()]


@contextlib.contextmanager
def _using(instruction_set: str) -> Iterator[None]:
    before = _cpu.instruction_set()
    _cpu.use_instruction_set(instruction_set)
    try:
        yield
    finally:
        _cpu.use_instruction_set(before)


def against_programs(
    place: Device, name: str, programs: Mapping[str, ReleasedProgram] = PROGRAMS
) -> Tally:
    """Compare compat with the stored answers of released programs."""
    tally = Tally(name)
    try:
        for title, program in programs.items():
            for golden in program.answer.goldens(FOLDER):
                comparison = program.agreement(golden, place.library)
                tally.add(f"{title}, case {golden.number}", comparison)
    except Exception as error:  # noqa: BLE001 - any exception is a problem of the installation
        tally.problems.append(f"{type(error).__name__}: {' '.join(str(error).split())}")
    return tally.closed()
