"""A simulator of a GPU's warps, which executes the PTX that NVRTC compiles.

It is a second way to run kernels on the emulator's arrays, used by ``with emulator.active(),
simulated():``. Lanes run in lockstep and diverge at branches, so it detects errors that the
emulator cannot: races between blocks or within a warp, and collectives that some lanes miss.
"""

from .kernel import Kernel, simulated, why_not

__all__ = ["Kernel", "simulated", "why_not"]
