"""Names the systems, options and mistakes that give an array of pooled values.

The values are those of a user's function, or numbers that a user has from elsewhere. Systems are
tried with the options given, then with other options, and then with a mistake of their caller or of
their implementation. The first of these steps that finds a match ends the search.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from roipool.systems import Compared
from roipool.tools.compare.differences import distance
from roipool.tools.compare.engines import ENGINES, row_of
from roipool.tools.compare.problem import Options, Problem, Unavailable
from roipool.tools.compare.reasons import near_rules
from roipool.tools.compare.systems import SYSTEMS, VOLUME_SYSTEMS
from roipool.tools.compare.values import Values
from roipool.tools.conformance.mutants import first_image, sides_as_corners, y_first
from roipool.tools.conformance.rules import RULES as MISTAKES

__all__ = ["Match", "identify"]

FloatArray: TypeAlias = NDArray[np.float32]

_RATIOS = (0, 1, 2, 3, 4)
_FEW_BOXES, _FEW_CHANNELS = 16, 4
_MANY_CELLS = 2**24  # that one system may copy in each of some fifty tries
_NEAREST = 4  # that are named if no system matches
_WORDS = {rule.name: rule.words for rule in MISTAKES}


@dataclass(frozen=True)
class Match:
    """Systems whose results are the values, or come nearest to them."""

    systems: tuple[str, ...]  # their names
    options: Options  # the options with which they compute them
    mistake: str  # the mistake in words; empty if there is none
    off: float  # the largest difference from the values
    numbers: FloatArray  # the first system's result

    def words(self, asked: Options) -> str:
        """Describe the match; options are named if they are not those asked for."""
        parts = [
            f"{name} {_number(mine)}"
            for name, mine, given in (
                ("sampling_ratio", self.options.sampling_ratio, asked.sampling_ratio),
                ("spatial_scale", self.options.spatial_scale, asked.spatial_scale),
            )
            if mine != given
        ]
        text = _listed(self.systems) + (f" with {' and '.join(parts)}" if parts else "")
        return f"{text}, but {self.mistake}" if self.mistake else text


class _Variation(NamedTuple):
    """A mistake: its description, the problem that is solved instead, and the change of results."""

    words: str
    problem: Callable[[Problem], Problem] = lambda problem: problem
    result: Callable[[FloatArray], FloatArray] = lambda result: result
    samples: str = ""  # the kind of systems that it concerns; all others if empty


def identify(problem: Problem, values: Values) -> tuple[list[Match], bool]:
    """Return what gives the values, and whether it does: else these are the nearest systems.

    Returns
    -------
    list of Match, bool
        Matches of the first step with any; those with the fewest changes first.
    """
    known = VOLUME_SYSTEMS if problem.is_volume else SYSTEMS
    rows = dict(sorted(known.items(), key=lambda item: "torchvision" not in item[0]))
    for number, step in enumerate(_steps(problem)):
        if number == 1:
            rows = _without_copies(rows, problem)
        found = [
            match
            for variation, other in step
            for match in _matches(rows, other, problem, values, variation)
        ]
        exact = [match for match in found if values.are(match.numbers, problem, exact=True)]
        if found:
            return exact or found, True
    if rule := near_rules(problem, values.numbers):
        numbers = values.numbers
        return [Match((rule.system,), problem.options, rule.change, 0.0, numbers)], True
    return _nearest(rows, problem, values), False


def _without_copies(rows: dict[str, Compared], problem: Problem) -> dict[str, Compared]:
    """Leave out systems that pool each bin from a copy of the map, if the copies are large."""
    down, across = problem.options.output_size[-2:]
    if problem.features.size * down * across <= _MANY_CELLS:
        return rows
    return {
        name: compared
        for name, compared in rows.items()
        if row_of(compared).groups_of(compared.options, (down, across)) == 1
    }


_Step: TypeAlias = list[tuple[_Variation, Options]]


def _steps(problem: Problem) -> Iterator[_Step]:
    """Yield what is tried, the most probable first."""
    given, right = problem.options, _Variation("")
    yield [(right, given)]
    ratios = [replace(given, sampling_ratio=ratio) for ratio in _RATIOS]
    yield [(right, options) for options in ratios if options != given]
    if problem.rotated or problem.is_volume:
        return
    mistakes = list(_mistakes(problem))
    yield [(mistake, given) for mistake in mistakes]
    scale = given.spatial_scale
    scales = dict.fromkeys((1.0, scale * 2, scale / 2, 1 / scale))
    others = [replace(given, spatial_scale=other) for other in scales if other != scale]
    yield [(right, options) for options in others]
    both = [
        replace(options, sampling_ratio=ratio)
        for options, ratio in itertools.product(others, _RATIOS)
        if ratio != given.sampling_ratio
    ]
    yield [(right, options) for options in both]
    yield [(mistake, options) for options in ratios if options != given for mistake in mistakes]


def _mistakes(problem: Problem) -> Iterator[_Variation]:
    """Yield the mistakes that may change the results of a problem."""
    yield _Variation(_WORDS["x and y swapped"], y_first)
    yield _Variation(_WORDS["corners as sides"], sides_as_corners)
    if len(problem.features) > 1:
        yield _Variation(_WORDS["batch index ignored"], first_image)
    yield _Variation(_WORDS["transposed bins"], result=_transposed)
    if problem.features.shape[1] > 1:
        yield _Variation("reverses the order of the channels", _reversed)
    yield _Variation(
        "divides boxes by H and W instead of H - 1 and W - 1", _by_size, samples="ends"
    )
    yield _Variation(
        "takes fractions x1, y1, x2, y2 for y1, x1, y2, x2", _fractions_swapped, samples="ends"
    )


def _transposed(pooled: FloatArray) -> FloatArray:
    return np.swapaxes(pooled, -1, -2).reshape(pooled.shape)


def _reversed(problem: Problem) -> Problem:
    return replace(problem, features=np.ascontiguousarray(problem.features[:, ::-1]))


def _by_size(problem: Problem) -> Problem:
    """Multiply boxes by (W - 1) / W and (H - 1) / H."""
    height, width = problem.features.shape[-2:]
    return _scaled(problem, 1 - 1 / width, 1 - 1 / height)


def _fractions_swapped(problem: Problem) -> Problem:
    """Swap x and y of boxes that are fractions of the last row and column."""
    height, width = (max(length - 1, 1) for length in problem.features.shape[-2:])
    swapped: Problem = y_first(problem)
    return _scaled(swapped, width / height, height / width)


def _scaled(problem: Problem, across: float, down: float) -> Problem:
    rois = problem.rois * np.array([1, across, down, across, down])
    return replace(problem, rois=rois.astype(np.float32))


def _some(problem: Problem) -> Problem:
    """Return the first boxes and channels of a problem, which most systems do not survive."""
    if len(problem.rois) <= _FEW_BOXES and problem.features.shape[1] <= _FEW_CHANNELS:
        return problem
    features = np.ascontiguousarray(problem.features[:, :_FEW_CHANNELS])
    return replace(problem, features=features, rois=problem.rois[:_FEW_BOXES])


def _matches(
    rows: dict[str, Compared],
    options: Options,
    problem: Problem,
    values: Values,
    variation: _Variation,
) -> list[Match]:
    """Return the systems that give the values, those with equal results together."""
    changed = replace(variation.problem(problem), options=options)
    tried = {
        name: row
        for name, row in rows.items()
        if options == problem.options or _takes(row, options, problem.options)
    }
    some = _some(changed)
    if some is not changed:
        few = values.first(*some.pooled_shape[:2])
        fitting = {name for name, got in _results(tried, some, variation) if few.are(got, problem)}
        tried = {name: row for name, row in tried.items() if name in fitting}
    results = _results(tried, changed, variation)
    return _together(
        [
            _match(name, numbers, options, variation, values)
            for name, numbers in results
            if values.are(numbers, problem)
        ],
        problem,
    )


def _match(
    name: str, numbers: FloatArray, options: Options, variation: _Variation, values: Values
) -> Match:
    off = float(distance(numbers, values.numbers).max(initial=0.0))
    return Match((name,), options, variation.words, off, numbers)


def _together(matches: list[Match], problem: Problem) -> list[Match]:
    """Put systems with equal results, except for roundings of sums, into one match."""
    found: list[Match] = []
    for match in matches:
        for k, known in enumerate(found):
            if Values(known.numbers).are(match.numbers, problem, exact=True):
                found[k] = replace(known, systems=(*known.systems, *match.systems))
                break
        else:
            found.append(match)
    return found


def _takes(compared: Compared, options: Options, given: Options) -> bool:
    """Return whether a change of options changes a system's results: else it was tried."""
    rules = compared.rules
    if rules is None or options.spatial_scale != given.spatial_scale:
        return True
    return rules.samples == "grid" and rules.ratio is None


def _results(
    rows: dict[str, Compared], problem: Problem, variation: _Variation
) -> Iterator[tuple[str, FloatArray]]:
    """Yield the results of the systems that accept a problem."""
    for name, compared in rows.items():
        if variation.samples and (not compared.rules or compared.rules.samples != "ends"):
            continue
        try:
            with np.errstate(all="ignore"):
                pooled = np.asarray(ENGINES["cpu"](compared)(problem, "forward"), np.float32)
        except (Unavailable, TypeError, ValueError):  # it does not take such input
            continue
        yield name, variation.result(pooled)


def _nearest(rows: dict[str, Compared], problem: Problem, values: Values) -> list[Match]:
    """Return the systems that come nearest to the values."""
    right = _Variation("")
    results = _results(rows, problem, right)
    every = [_match(name, got, problem.options, right, values) for name, got in results]
    return sorted(_together(every, problem), key=lambda match: match.off)[:_NEAREST]


def _listed(names: tuple[str, ...], most: int = 4) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _number(value: Any) -> str:
    return "adaptive" if value == 0 else f"{value:.6g}"
