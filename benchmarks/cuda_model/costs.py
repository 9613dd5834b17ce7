"""The cost of a PTX instruction on a GPU: issue slots, and the latency of its result.

This table approximates the assembler's machine code, in which a 64-bit addition is two
instructions, a division ten to forty, and a move usually none.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, NamedTuple

import numpy as np
from _support.simt import COST
from _support.simt.ptx import Entry, Source, split_arguments

HostArray = np.ndarray[Any, Any]


class Cost(NamedTuple):
    """The cost of one instruction of a warp."""

    slots: float  # machine instructions
    latency: float  # cycles until the result is available or, without one, until the next begins


FREE = Cost(0, 0)
ARITHMETIC = Cost(1, 4)
INTEGER = Cost(1, 4)
WIDE_INTEGER = Cost(2, 6)
CONVERSION = Cost(1, 10)
BRANCH = Cost(1, 6)
L1_LATENCY = 34
COLLECTIVE = Cost(1, 16)
BARRIER = Cost(1, 20)

# The first entry that matches an opcode applies.
COSTS: tuple[tuple[str, Cost], ...] = (
    (r"ld\.param|mov|cvta|neg|not\.pred|cvt\.(u32|s32)\.u64|cvt\.u64\.u32|cvt\.u16|ret", FREE),
    (r"ld\.shared", Cost(1, 26)),
    (r"ld\.|atom\.", Cost(1, L1_LATENCY)),
    (r"st\.|red\.", Cost(1, 1)),
    (r"bra", BRANCH),
    (r"bar\.sync", BARRIER),
    (r"bar\.warp", Cost(1, 6)),
    (r"(shfl|vote|match)\.", COLLECTIVE),
    (r"div\.rn.*f32", Cost(9, 40)),
    (r"(div|rcp|sqrt)\..*f64", Cost(16, 120)),
    (r"rcp.*f32", Cost(6, 36)),
    (r"(div|rem)\.[us]32", Cost(18, 80)),
    (r"(div|rem)\.[us]64", Cost(90, 350)),
    (r"mul\.lo\.[us]64|mad\.lo\.[us]64", Cost(4, 10)),
    (r"mul\.wide|mad\.wide|(mul|mad)\.lo", Cost(1, 4)),
    (r"cvt\.s64\.s32", INTEGER),
    (r"cvt\..*(s64|u64)|cvt\..*f64", Cost(1, 24)),
    (r"cvt\.", CONVERSION),
    (r"(popc|clz|brev|bfind)", CONVERSION),
    (r"(min|max)\.[su]64", Cost(4, 10)),
    (r"set[p.].*[sub]64|selp\.[bsu]64|(add|sub|shl|shr|and|or|xor|not|bfi)\.[bsu]64", WIDE_INTEGER),
    (r"(add|sub|mul|fma|mad)\..*f64", Cost(1, 8)),
    (r"(add|sub|mul|fma|mad)\..*f(16|32)", ARITHMETIC),
    (r".*pred", Cost(0.5, 4)),
    (r"", INTEGER),
)
ARITHMETICS = re.compile(r"(add|sub|mul|mad|fma)\.")
_PATTERNS = [(re.compile(pattern), cost) for pattern, cost in COSTS]


def cost_of(opcode: str) -> Cost:
    """Return the cost of an instruction."""
    return next(cost for pattern, cost in _PATTERNS if pattern.match(opcode))


def costs_of(entry: Entry) -> HostArray:
    """Return the cost of each instruction of a kernel, with loads served by L1."""
    costs = np.zeros(len(entry.code), COST)
    predicated = predicates_of(entry)
    starts = {0, *entry.labels.values()}
    starts |= {place + 1 for place, source in enumerate(entry.code) if source.ends_block}
    for place, source in enumerate(entry.code):
        slots, latency = FREE if place in predicated else cost_of(source.opcode)
        costs[place] = slots, latency, results_of(source), place in starts
    return costs


def predicates_of(entry: Entry) -> set[int]:
    """Return the indices of selections that cost nothing on a GPU.

    If a selection either keeps a register or takes the result of arithmetic that nothing else
    needs, the assembler makes the arithmetic write the register under a predicate.
    """
    uses, written = Counter[str](), {}
    for place, source in enumerate(entry.code):
        operands = re.findall(r"%\w+", " ".join(source.arguments))
        count = results_of(source)
        uses.update(operands[count:])
        written.update(dict.fromkeys(operands[:count], place))
    found = set()
    for place, source in enumerate(entry.code):
        if not source.opcode.startswith("selp."):
            continue
        result, *others = source.arguments[:3]
        if result not in others:
            continue
        others.remove(result)
        maker = written.get(others[0])
        if (
            maker is not None
            and uses[others[0]] == 1
            and ARITHMETICS.match(entry.code[maker].opcode)
        ):
            found.add(place)
    return found


def results_of(source: Source) -> int:
    """Return the number of operands that an instruction writes."""
    kind = source.opcode.split(".")[0]
    if kind in ("st", "red", "bra", "bar", "ret"):
        return 0
    return len(split_arguments(source.arguments[0].strip("{}")))
