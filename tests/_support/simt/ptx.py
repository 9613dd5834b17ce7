"""Translates NVRTC's PTX to a program for the machine: instructions with numbered registers.

Only the features of roipool's kernels are supported: entries without calls, dynamic shared memory,
labels on separate lines. Anything else is an error that names the line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

HostArray = np.ndarray[Any, Any]

# machine.h has the same fields.
_INTEGERS = (
    "operation guard guard_is_not space width vector is_signed target reconvergence line"
).split()
INSTRUCTION = np.dtype(
    [
        *((name, np.int32) for name in _INTEGERS),
        ("offset", np.int64),
        ("operands", np.int32, 8),
    ],
    align=True,
)
SPACES = {"global": 0, "shared": 1, "local": 2, "param": 3}
GENERIC = 4
WINDOWS = {"global": 0, "shared": 0x7000000000000000, "local": 0x6000000000000000}
# The first registers, which the machine sets; machine.cpp has the same order.
_VECTORS = "tid ntid ctaid nctaid".split()
NUMBERS = [*(f"%{name}.{axis}" for name in _VECTORS for axis in "xyz"), "%laneid"]
# Parts of an opcode without effect here: C++ rounds to nearest, too, and a load of constant data is
# a load.
SILENT = {"rn", "lo", "sync", "uni", "nc", "cta", "relaxed", "gpu", "aligned", "approx"}
# Operations whose low bits are the same for signed and unsigned numbers.
SIGNLESS = {"mov", "add", "sub", "mul", "mad", "neg", "selp", "and", "or", "xor", "not", "shl"}
INSTRUCTION_LINE = re.compile(r"(?:@(!?)(%p\d+)\s+)?([a-z][\w.:]*)\s*(.*);")
PARAMETER = re.compile(r"\.param (?:\.align (\d+) )?\.(\w+)(?: \.ptr.*?)? (\w+)(?:\[(\d+)\])?,?")


def bytes_of(type_name: str) -> int:
    """Return the size of a PTX type."""
    return int(type_name[1:]) // 8


class Source(NamedTuple):
    """One instruction of the text."""

    line: int
    guard: str  # a predicate, or ""
    guard_is_not: bool
    opcode: str
    arguments: list[str]

    @property
    def ends_block(self) -> bool:
        """Whether the next instruction may not follow this one."""
        return self.opcode.split(".")[0] in ("bra", "ret", "exit")


def split_arguments(text: str) -> list[str]:
    """Split operands at commas, except in vectors in braces."""
    return re.findall(r"\{[^}]*\}|\[[^]]*\]|[^,\s]+", text)


@dataclass
class Entry:
    """A kernel of a PTX text."""

    name: str
    parameters: dict[str, tuple[int, int]] = field(default_factory=dict)  # offset, bytes
    local_bytes: int = 0
    code: list[Source] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)

    @property
    def parameter_bytes(self) -> int:
        """The total size of the arguments."""
        return max((offset + size for offset, size in self.parameters.values()), default=0)

    def add_parameter(self, line: str) -> None:
        """Parse the declaration of a parameter."""
        found = PARAMETER.fullmatch(line)
        if found is None:
            raise NotImplementedError(f"a parameter of PTX: {line}")
        alignment, type_name, name, count = found.groups()
        size = bytes_of(type_name) * int(count or 1)
        to = int(alignment or size)
        self.parameters[name] = (-(-self.parameter_bytes // to) * to, size)

    def add_line(self, number: int, line: str) -> None:
        """Parse a line between the entry's braces."""
        if found := re.fullmatch(r"(\$\w+):", line):
            self.labels[found[1]] = len(self.code)
        elif found := re.fullmatch(r"\.local .*\[(\d+)\];", line):
            self.local_bytes = int(found[1])
        elif found := INSTRUCTION_LINE.fullmatch(line):
            negated, guard, opcode, arguments = found.groups()
            self.code.append(
                Source(number, guard or "", negated == "!", opcode, split_arguments(arguments))
            )
        elif line and not line.startswith((".reg", ".pragma", "{", "}")):
            raise NotImplementedError(f"line {number} of PTX: {line}")

    @cached_property
    def reconvergences(self) -> list[int]:
        """Return the reconvergence point of each instruction: its immediate post-dominator."""
        return immediate_post_dominators(self)


def entries(ptx: str) -> Iterator[Entry]:
    """Yield the kernels of a PTX text."""
    entry: Entry | None = None
    within = False
    for number, raw in enumerate(ptx.split("\n"), 1):
        line = re.sub(r"//.*", "", raw).strip()
        if found := re.match(r"\.visible \.entry (\w+)\(", line):
            entry, within = Entry(found[1]), False
        elif entry is None:
            continue
        elif raw == "{":
            within = True
        elif raw == "}":
            yield entry
            entry = None
        elif within:
            entry.add_line(number, line)
        elif line.startswith(".param"):
            entry.add_parameter(line)


def immediate_post_dominators(entry: Entry) -> list[int]:
    """Return, for each instruction, the first instruction on all paths from it to the end.

    Sets of basic blocks are represented by the bits of an integer.
    """
    code, end = entry.code, len(entry.code)
    starts = {0, end, *entry.labels.values()}
    starts |= {place + 1 for place, source in enumerate(code) if source.ends_block}
    blocks = sorted(start for start in starts if start <= end)
    number = {start: n for n, start in enumerate(blocks)}
    last = len(blocks) - 1
    following: list[list[int]] = []
    for n in range(last):
        source = code[blocks[n + 1] - 1]
        ways = []
        if source.opcode.startswith("bra"):
            ways.append(number[entry.labels[source.arguments[0]]])
        elif source.ends_block:
            ways.append(last)
        if not source.ends_block or source.guard:
            ways.append(n + 1)
        following.append(ways)
    everything = (1 << (last + 1)) - 1
    after = [everything] * last + [1 << last]
    changed = True
    while changed:
        changed = False
        for n in reversed(range(last)):
            common = everything
            for way in following[n]:
                common &= after[way]
            common |= 1 << n
            changed |= common != after[n]
            after[n] = common
    size = [found.bit_count() for found in after]
    result = []
    for n in range(last):
        others = [m for m in range(last + 1) if m != n and after[n] >> m & 1]
        meet = blocks[max(others, key=lambda m: size[m])]
        result += [meet] * (blocks[n + 1] - blocks[n])
    return result


class Program(NamedTuple):
    """A kernel for the machine."""

    parameters: list[tuple[int, int]]  # offset and bytes
    parameter_bytes: int
    local_bytes: int
    instructions: HostArray
    registers: HostArray  # initial values


class Assembler:
    """Numbers the registers of an entry and encodes its instructions."""

    def __init__(self, entry: Entry, operation: Callable[[str], int | None]) -> None:
        self.entry = entry
        self.operation = operation
        self.registers = {name: number for number, name in enumerate(NUMBERS)}
        self.values = [0] * len(NUMBERS)

    def program(self) -> Program:
        """Assemble the whole kernel."""
        entry = self.entry
        instructions = np.zeros(len(entry.code) + 1, INSTRUCTION)
        for place, source in enumerate(entry.code):
            try:
                self.encode(source, instructions[place])
            except (KeyError, ValueError) as error:
                text = f"{source.opcode} {', '.join(source.arguments)}"
                raise NotImplementedError(f"line {source.line} of PTX: {text} ({error})") from error
            instructions[place]["reconvergence"] = entry.reconvergences[place]
        values = np.array([value % 2**64 for value in self.values], np.uint64)
        parameters = list(entry.parameters.values())
        return Program(parameters, entry.parameter_bytes, entry.local_bytes, instructions, values)

    def register(self, name: str, value: int = 0) -> int:
        """Return the number of a register, or of the register of a constant."""
        if name not in self.registers:
            self.registers[name] = len(self.values)
            self.values.append(value)
        return self.registers[name]

    def operand(self, text: str) -> int:
        """Return the register of an operand; each constant has a register."""
        if text.startswith("%"):
            return self.register(text)
        if found := re.fullmatch(r"0[fd]([0-9A-Fa-f]+)", text):
            return self.register(f"bits {found[1]}", int(found[1], 16))
        if re.fullmatch(r"-?\d+|-?0x[0-9A-Fa-f]+U?", text):
            value = int(text.rstrip("U"), 0)
        elif text in self.entry.parameters:
            value = self.entry.parameters[text][0]
        elif text == "roipool_shared_memory" or text.startswith("__local_depot"):
            value = 0
        else:
            raise ValueError(f"{text} is not an operand")
        return self.register(f"constant {value}", value)

    def name(self, opcode: str) -> str:
        """Return the machine's name of an opcode."""
        parts = [part for part in opcode.split(".") if part not in SILENT]
        if parts[0] in SIGNLESS and not {"wide", "hi"} & set(parts):
            parts[-1] = re.sub(r"^s(?=\d)", "u", parts[-1])
        return ".".join(re.sub(r"^b(?=\d)", "u", part) for part in parts)

    def encode(self, source: Source, into: Any) -> None:
        """Encode an instruction."""
        parts = source.opcode.split(".")
        into["line"] = source.line
        into["guard"] = self.register(source.guard) if source.guard else -1
        into["guard_is_not"] = source.guard_is_not
        operands: list[str] = source.arguments
        name = self.name(source.opcode)
        if parts[0] in ("ld", "st", "atom", "red"):
            name = self.encode_memory(source, into)
            operands = self.memory_operands(source)
        elif parts[0] == "bra":
            into["target"] = self.entry.labels[operands[0]]
            name, operands = "bra", []
        elif parts[0] == "bar":
            name = "bar.warp" if "warp" in parts else "bar"
            operands = operands if "warp" in parts else []
        elif parts[0] == "shfl":  # the predicate for sources in bounds is not supported
            operands = [operands[0].split("|")[0], *operands[1:]]
        elif parts[0] == "mov" and "{" in "".join(operands):  # two halves of one number
            what = "unpack" if operands[0].startswith("{") else "pack"
            name = f"{what}.{parts[1].replace('b', 'u')}"
            parted = split_arguments(re.sub("[{}]", "", ",".join(operands)))
            operands = ["" if text == "_" else text for text in parted]
        elif parts[0] == "cvta":
            space = next(part for part in parts if part in SPACES)
            window = WINDOWS[space]
            name, operands = "add.u64", [*operands, str(-window if "to" in parts else window)]
        number = self.operation(name)
        if number is None:
            raise ValueError(f"no operation {name}")
        into["operation"] = number
        for place, text in enumerate(operands):
            into["operands"][place] = self.operand(text) if text else -1

    def encode_memory(self, source: Source, into: Any) -> str:
        """Encode the address of a load, store or atomic; return the machine's name for it."""
        parts = source.opcode.split(".")
        type_name = parts[-1]
        address = next(text for text in source.arguments if text.startswith("["))
        found = re.fullmatch(r"\[(.+?)(?:\+(-?\d+))?\]", address)
        assert found is not None
        into["offset"] = int(found[2] or 0)
        into["space"] = next((SPACES[part] for part in parts if part in SPACES), GENERIC)
        into["width"] = bytes_of(type_name)
        into["vector"] = next((int(part[1]) for part in parts if part in ("v2", "v4")), 1)
        into["is_signed"] = type_name[0] == "s"
        if parts[0] in ("ld", "st"):
            return parts[0]
        operation = next(part for part in parts if part in ("add", "min", "max"))
        if operation == "add":
            type_name = type_name.replace("s", "u")
        return f"{parts[0]}.{operation}.{type_name}"

    def memory_operands(self, source: Source) -> list[str]:
        """Return values and address; the values of a load come first, those of a store last."""
        operands = []
        for text in source.arguments:
            if text.startswith("["):
                text = re.sub(r"\+-?\d+$", "", text[1:-1])
            operands += split_arguments(text[1:-1]) if text.startswith("{") else [text]
        return ["", *operands] if source.opcode.startswith("red") else operands
