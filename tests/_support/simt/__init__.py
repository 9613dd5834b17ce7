"""A simulator of a GPU's warps, which executes the PTX that NVRTC compiles.

It is a second way to run kernels on the emulator's arrays, used by ``with emulator.active(),
simulated():``. Lanes run in lockstep and diverge at branches, so it detects errors that the
emulator cannot: races within a warp, and collectives that some lanes miss. It also counts a GPU's
work (``Counts``).
"""

from .kernel import (
    ARCHITECTURE,
    COST,
    Counts,
    Kernel,
    Profile,
    Profiling,
    Record,
    recorded,
    simulated,
    why_not,
)

__all__ = [
    "ARCHITECTURE",
    "COST",
    "Counts",
    "Kernel",
    "Profile",
    "Profiling",
    "Record",
    "recorded",
    "simulated",
    "why_not",
]
