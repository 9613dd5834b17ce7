"""The base class of the systems' layers."""

from __future__ import annotations


class Layer:
    """A layer: a function of its system with fixed options, which are its attributes."""

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value}" for name, value in vars(self).items())
        return f"{type(self).__name__}({options})"
