"""A simulator of a GPU's warps: runs kernels from the PTX that NVRTC makes of them.

The second way to run kernels on the emulator's arrays: ``with emulator.active(), simulated():``.
Lanes run in step and part at branches, so that it sees what fibres cannot: races within a warp and
collectives that some lanes miss. It also counts what a GPU would have to do (``Counts``).
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
