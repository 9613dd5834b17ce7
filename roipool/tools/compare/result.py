"""The findings of a comparison, for all forms of output."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from roipool.tools.compare.differences import Difference, PartComparison
from roipool.tools.compare.identify import Match, identify
from roipool.tools.compare.inputs import Boxes, FeatureMap
from roipool.tools.compare.problem import Problem
from roipool.tools.compare.reasons import Verdict, explain
from roipool.tools.compare.values import Values

__all__ = ["Findings", "Pair"]


class Pair(NamedTuple):
    """Two groups: their indices, their difference and its explanation."""

    group: int
    against: int
    apart: Difference
    verdict: Verdict


@dataclass(frozen=True)
class Findings:
    """The result of a comparison: input, outputs, differences, and skipped implementations."""

    problem: Problem  # the input
    features: FeatureMap  # where the input comes from
    boxes: Boxes
    parts: list[PartComparison]  # the comparison of the forward, then of gradients
    versions: dict[str, str]  # versions of the installed libraries that took part
    absent: dict[str, str]  # requested engines and libraries that are missing: the reasons
    values: Values | None = None  # pooled values that the user gave to be identified
    _identified: dict[str, tuple[list[Match], bool]] = field(default_factory=dict)

    @property
    def forward(self) -> PartComparison:
        """The comparison of pooled values."""
        return self.parts[0]

    def to_reference(self, comparison: PartComparison) -> Iterator[Pair]:
        """Yield the pairs of the reference's group with every other group."""
        home = comparison.reference_group
        for group in range(len(comparison.groups)):
            if group != home:
                yield self.pair(comparison, group, home)

    def pairs(self, comparison: PartComparison) -> Iterator[Pair]:
        """Yield every pair of groups, in the order of `PartComparison.pairs`."""
        for group, against in comparison.pairs:
            yield self.pair(comparison, group, against)

    def pair(self, comparison: PartComparison, group: int, against: int) -> Pair:
        """Return one pair of groups with the explanation of its difference."""
        pair = _pair(self.problem, comparison, group, against)
        name = pair.verdict.unknown
        if not name:
            return pair
        output = next(each.output for each in comparison.groups if name in each.members)
        matches, is_equal = self.identified(name, Values(output))
        if not is_equal:
            return pair
        words = f"{name} computes like {matches[0].words(self.problem.options)}"
        return pair._replace(verdict=replace(pair.verdict, remark=words))

    def identified(self, name: str, values: Values) -> tuple[list[Match], bool]:
        """Return what `identify` finds for values; it searches once for each name."""
        if name not in self._identified:
            self._identified[name] = identify(self.problem, values)
        return self._identified[name]


def _pair(problem: Problem, comparison: PartComparison, group: int, against: int) -> Pair:
    apart = comparison.between(group, against)
    if not apart.where:
        return Pair(group, against, apart, Verdict([], "only signs of zeros differ"))
    first, second = comparison.groups[group], comparison.groups[against]
    verdict = explain(
        problem,
        comparison.part,
        (first.members[0], second.members[0]),
        apart.where,
        (first.output, second.output),
    )
    return Pair(group, against, apart, verdict)
