"""All that a comparison found, for those who print, write or draw it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from roipool.tools.compare.differences import Comparison, Difference
from roipool.tools.compare.inputs import Boxes, FeatureMap
from roipool.tools.compare.problem import Problem
from roipool.tools.compare.reasons import Verdict, explain

__all__ = ["Findings", "Pair"]


class Pair(NamedTuple):
    """Two groups: indices, how far they are apart, and why."""

    group: int
    against: int
    apart: Difference
    verdict: Verdict


@dataclass(frozen=True)
class Findings:
    """The result of a comparison: input, outputs, differences, and skipped implementations.

    Attributes
    ----------
    problem : Problem
        The question.
    features, boxes : FeatureMap, Boxes
        Where it comes from.
    parts : list of Comparison
        The forward's, then those of gradients.
    versions : dict of str to str
        Of the installed programs that took part.
    absent : dict of str to str
        Engines and programs that were asked for and are not there, and why.
    """

    problem: Problem
    features: FeatureMap
    boxes: Boxes
    parts: list[Comparison]
    versions: dict[str, str]
    absent: dict[str, str]

    @property
    def forward(self) -> Comparison:
        """The comparison of pooled values."""
        return self.parts[0]

    def to_reference(self, comparison: Comparison) -> Iterator[Pair]:
        """Yield the pairs of the reference's group with every other."""
        home = comparison.reference_group
        for group in range(len(comparison.groups)):
            if group != home:
                yield self.pair(comparison, group, home)

    def pairs(self, comparison: Comparison) -> Iterator[Pair]:
        """Yield every pair of groups, as the tolerance sees it."""
        for group, against in comparison.pairs:
            yield self.pair(comparison, group, against)

    def pair(self, comparison: Comparison, group: int, against: int) -> Pair:
        """Return one pair of groups with the reason of its difference."""
        return _pair(self.problem, comparison, group, against)


def _pair(problem: Problem, comparison: Comparison, group: int, against: int) -> Pair:
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
