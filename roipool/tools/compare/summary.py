"""A summary of one screen: which systems agree, how much the others differ, and why.

Averages are measured against an average and maxima against a maximum, unless the user names a
reference: the difference of an average and a maximum is of no interest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from roipool.cli.text import short
from roipool.reference import Rules
from roipool.tools.alternatives import FIELDS, alternative
from roipool.tools.compare.differences import PartComparison
from roipool.tools.compare.reasons import ROUNDINGS, bins_changed
from roipool.tools.compare.result import Findings
from roipool.tools.compare.systems import rules_of
from roipool.tools.compare.values import Values

__all__ = ["Section", "SummaryLine", "sections"]

_FEW_GROUPS = 4  # in a section; of more, so that they fit a screen, only one rule each is named
_ADDED = {"cell": "a cell", "pixel": "a pixel", "rounded pixel": "a pixel before rounding"}
# The reference of each family, if it takes part.
_USUAL = {"averages": "roipool.roi_align", "maxima": "roipool.roi_pool"}


@dataclass
class SummaryLine:
    """Systems whose results are equal except for roundings, and their difference."""

    members: list[str]  # names of the systems
    off: float = 0.0  # the largest difference from the section's reference
    why: str = ""  # the explanation in a few words; empty if they agree with the reference


@dataclass
class Section:
    """The systems measured against the same reference, the nearest first."""

    family: str  # "averages", "maxima", or "" if all systems are in one section
    reference: str  # the reference
    agreeing: list[str]  # the systems that agree with the reference, except for roundings
    lines: list[SummaryLine] = field(default_factory=list)  # the other systems


def sections(findings: Findings, comparison: PartComparison, is_chosen: bool) -> list[Section]:
    """Return the sections of a comparison.

    Parameters
    ----------
    comparison : Comparison
        One of their parts.
    is_chosen : bool
        Whether the user named the reference, which puts all systems into one section.
    """
    homes = {"": comparison.reference} if is_chosen else _references(comparison)
    places = {family: _group_of(comparison, name) for family, name in homes.items()}
    members: dict[str, list[int]] = {family: [] for family in homes}
    for group in range(len(comparison.groups)):
        members[_family(findings, comparison, group, places)].append(group)
    return [
        _section(findings, comparison, family, homes[family], groups)
        for family, groups in members.items()
    ]


def _references(comparison: PartComparison) -> dict[str, str]:
    """Return the reference of each family that takes part, the main reference's family first."""
    ran = [result.name for result in comparison.results if result.error is None]
    by_family: dict[str, list[str]] = {}
    for name in [comparison.reference, *ran]:
        rules = rules_of(name)
        if rules is not None:
            by_family.setdefault(_family_of_rules(rules), []).append(name)
    if not by_family:
        return {"": comparison.reference}
    return {
        family: _USUAL[family] if _USUAL[family] in names else names[0]
        for family, names in by_family.items()
    }


def _family_of_rules(rules: Rules) -> str:
    return "averages" if rules.reduce == "mean" else "maxima"


def _family(
    findings: Findings, comparison: PartComparison, group: int, places: dict[str, int]
) -> str:
    """Return the section of a group: a user's function belongs to the systems that it is like."""
    if len(places) == 1:
        return next(iter(places))
    names = comparison.groups[group].members
    if comparison.part == "forward" and not any(map(rules_of, names)):
        matches, is_equal = findings.identified(names[0], Values(comparison.groups[group].output))
        names = [*matches[0].systems] if is_equal else []
    for name in names:
        rules = rules_of(name)
        if rules is not None and _family_of_rules(rules) in places:
            return _family_of_rules(rules)
    return min(places, key=lambda family: comparison.between(group, places[family]).greatest)


def _section(
    findings: Findings, comparison: PartComparison, family: str, reference: str, groups: list[int]
) -> Section:
    home = _group_of(comparison, reference)
    section = Section(family, reference, [])
    leaders: list[tuple[int, list[str]]] = [(home, section.agreeing)]
    for group in sorted(groups, key=lambda each: comparison.between(each, home).greatest):
        names = [name for name in comparison.groups[group].members if name != reference]
        for leader, known in leaders:
            if group == leader or _is_rounding(comparison, group, leader):
                known += names
                break
        else:
            apart = comparison.between(group, home)
            most = 1 if len(groups) > _FEW_GROUPS else None
            why = _why(findings, comparison, group, home, names, most)
            section.lines.append(SummaryLine(names, apart.greatest, why))
            leaders.append((group, names))
    return section


def _group_of(comparison: PartComparison, name: str) -> int:
    return next(result.group for result in comparison.results if result.name == name)


def _is_rounding(comparison: PartComparison, first: int, second: int) -> bool:
    """Return whether two groups differ by no more than sums in different orders."""
    outputs = [comparison.groups[each].output for each in (first, second)]
    largest = max((float(np.max(np.abs(each), initial=0.0)) for each in outputs), default=0.0)
    allowed = ROUNDINGS * float(np.finfo(np.float32).eps) * largest
    return math.isfinite(largest) and comparison.between(first, second).greatest <= allowed


def _why(
    findings: Findings,
    comparison: PartComparison,
    group: int,
    home: int,
    names: list[str],
    most: int | None,
) -> str:
    """Return the rules of a group's systems that differ from the reference's, in a few words.

    They are ordered by the number of bins that each changes, since the largest difference shows
    only some. With `most`, so many are named, and the others counted.
    """
    verdict, (name, *_) = findings.pair(comparison, group, home).verdict, names
    ours, theirs = rules_of(name), rules_of(comparison.groups[home].members[0])
    if ours is None or theirs is None:
        parts = (verdict.remark.removeprefix(f"{name} "), replace(verdict, remark="").words)
        return "; ".join(filter(None, parts))
    if not verdict.reasons:
        return verdict.words
    members = comparison.groups[group], comparison.groups[home]
    first, against = (each.members[0] for each in members)
    outputs = members[0].output, members[1].output
    counted = bins_changed(findings.problem, (first, against), outputs)
    changed = list(counted) or [reason.rule for reason in verdict.reasons]
    left = len(changed) - most if most else 0
    more = [f"and {left} more"] if left > 0 else []
    return ", ".join([*(_few_words(rule, ours, theirs) for rule in changed[:most]), *more])


def _few_words(rule: str, ours: Rules, theirs: Rules) -> str:
    value = getattr(ours, rule)
    if rule == "empty":
        return f"empty bins are {short(value)}"
    known = alternative(rule, value)
    words = known.brief if known and known.brief else f"{FIELDS[rule]} is {value}"
    if rule == "extra" and "none" not in (value, theirs.extra):
        return f"{words}, not {_ADDED[theirs.extra]}"
    return words
