"""The base class of the systems' layers, which are modules of PyTorch where that is imported."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Self, cast

from roipool import _arguments as check

if TYPE_CHECKING:
    from torch.nn import Module
else:  # until PyTorch is imported
    Module = object


# By the type of an option.
_CHECKS: dict[Any, Callable[[str, Any], Any]] = {
    "int | Sequence[int]": check.size_pair,
    "float": check.real_number,
    "int": check.whole_number,
    "bool": check.flag,
}


class Layer(Module):  # type: ignore[misc]  # no types where no torch is
    """A layer: a function of its system with fixed options, which are its attributes.

    Most layers are data classes, whose fields are the options. A layer that is made after PyTorch
    was imported is a ``torch.nn.Module``, too. Pickles and copies are of the class itself, so that
    either kind can be loaded as the other. Options that the system's own layer lacks are private,
    and not shown.
    """

    def __new__(cls, *_args: Any, **_options: Any) -> Self:
        """Return a layer, as a module already initialised if it is one."""
        torch_module = _torch_module()
        if torch_module is None:
            return object.__new__(cls)
        layer: Self = object.__new__(_as_module(cls, torch_module))
        torch_module.__init__(layer)
        return layer

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Return the result of `forward`; a module also calls its hooks."""
        of_module = getattr(super(), "__call__", None)  # noqa: B004 - the next class's own
        return (of_module or self.forward)(*args, **options)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.extra_repr()})"

    def extra_repr(self) -> str:
        """Return the options."""
        own = vars(self)
        names = [name for name in _option_names(type(self)) if name in own]
        return ", ".join(f"{name}={own[name]}" for name in names)

    def __reduce__(self) -> tuple[Any, ...]:
        layer_class = vars(type(self)).get("_layer_class", type(self))
        return _new, (layer_class,), self.__getstate__()

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes, without those that every new module has."""
        new = vars(_new(type(self)))
        return {
            name: value
            for name, value in vars(self).items()
            if name not in new or value != new[name]
        }


class CheckedLayer(Layer):
    """A layer that checks its options when it is made, not when it is called."""

    def __post_init__(self) -> None:
        for field in fields(cast(Any, self)):  # of the subclass
            checked = _CHECKS.get(field.type)
            if checked is not None:
                setattr(self, field.name, checked(field.name, getattr(self, field.name)))


def _new(layer_class: type[Layer]) -> Layer:
    """Return a layer without options."""
    return layer_class.__new__(layer_class)


def is_recorded(maps: Any) -> bool:
    """Whether torch.fx records a call with these maps, or such maps by name."""
    proxy = getattr(sys.modules.get("torch.fx"), "Proxy", ())
    values = maps.values() if isinstance(maps, dict) else ()
    return any(isinstance(each, proxy) for each in (maps, *values))


def is_compiled() -> bool:
    """Whether torch.compile or torch.export records this call."""
    torch: Any = sys.modules.get("torch")
    return torch is not None and bool(torch.compiler.is_compiling())


def _torch_module() -> Any:
    """Return PyTorch's class of modules, or None where it is not imported."""
    return getattr(getattr(sys.modules.get("torch"), "nn", None), "Module", None)


def _as_module(layer_class: type[Layer], torch_module: type) -> type[Layer]:
    """Return the subclass of a layer's class whose instances are modules; one for each class."""
    if issubclass(layer_class, torch_module):
        return layer_class
    made: Any = vars(layer_class).get("_module_class")
    if made is None:
        attributes = {
            "__module__": layer_class.__module__,
            "__qualname__": layer_class.__qualname__,
            "__doc__": layer_class.__doc__,
            "_layer_class": layer_class,
        }
        metaclass: Any = type(layer_class)
        made = metaclass(layer_class.__name__, (layer_class, torch_module), attributes)
        layer_class._module_class = made
    return made


def _option_names(layer_class: type[Layer]) -> list[str]:
    """Return the names of the options: the arguments of the system's class, not of a user's."""
    for base in layer_class.__mro__:
        if "__init__" in vars(base) and base.__module__.startswith(f"{__package__}."):
            return [*inspect.signature(vars(base)["__init__"]).parameters][1:]
    return []
