"""The base class of the systems' layers."""

from __future__ import annotations


class Layer:
    """A layer: a function of its system with fixed options, which are its attributes.

    Options that the system's own layer lacks are private, and not shown.
    """

    def __repr__(self) -> str:
        shown = {name: value for name, value in vars(self).items() if not name.startswith("_")}
        options = ", ".join(f"{name}={value}" for name, value in shown.items())
        return f"{type(self).__name__}({options})"
