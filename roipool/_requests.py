"""PyTorch's front end: the contract of `ops/`, and functions with signatures."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from roipool import _arguments as check
from roipool._definitions import OPS, PYRAMID_OPS, VOLUME_OPS, Op, Variant
from roipool._errors import with_name
from roipool._layout import height_width
from roipool.ops import multilevel_roi_align as multilevel

Arguments = Mapping[str, Any]


Choices = Mapping[str, tuple[Any, ...]]


def choices_of(op: Op) -> Choices:
    """Return the arguments that choose a variant, and what each may be, the default first."""
    names = {name for variant in op.variants.values() for name in variant.options}
    return {
        name: tuple(dict.fromkeys(variant.options[name] for variant in op.variants.values()))
        for name in sorted(names)
    }


def variant_of(op: Op, choices: Choices, given: Arguments) -> Variant:
    """Return the variant that the arguments choose; what they lack is the default.

    It is the first where no variant has all of them, which the operation's definition refuses.
    """
    chosen = {name: given.get(name, allowed[0]) for name, allowed in choices.items()}
    for name, allowed in choices.items():
        if isinstance(allowed[0], bool):
            check.flag(name, chosen[name])
        else:
            check.choice(name, chosen[name], allowed)
    for variant in op.variants.values():
        if all(chosen[name] == value for name, value in variant.options.items()):
            return variant
    return next(iter(op.variants.values()))


def bins_of(op: Op, given: Arguments) -> tuple[int, int]:
    """Return the bins, rows and columns, of a forward or of a gradient, whose shape says it."""
    if op.size in given:
        return check.size_pair(op.size, given[op.size])
    return height_width(given[op.form.grad_output].shape, check.layout(given["layout"]))


def _stars(parameters: list[inspect.Parameter]) -> list[str]:
    """Return the text before each parameter: a star before the first keyword-only one."""
    by_name = [each.kind is each.KEYWORD_ONLY for each in parameters]
    return [
        "*, " if only and not any(by_name[:index]) else "" for index, only in enumerate(by_name)
    ]


def with_signature_of(
    like: Callable[..., Any],
    compute: Callable[[Arguments], Any],
    package: str,
    what: str,
    is_compiling: Callable[[], bool] = lambda: False,
) -> Callable[..., Any]:
    """Return a function with the name and the arguments of NumPy's; `what` are its arrays.

    Its errors begin with the name of an operation. `is_compiling` says whether the library is
    tracing Python, which cannot inspect errors.
    """
    signature = inspect.signature(like)
    parameters = signature.parameters.values()
    # Python binds arguments ten times as fast as inspect does: a function made from the signature.
    head = ", ".join(
        f"{star}{each.name}" + ("" if each.default is each.empty else f"={each.default!r}")
        for each, star in zip(parameters, _stars(list(parameters)), strict=True)
    )
    pairs = ", ".join(f"{name!r}: {name}" for name in signature.parameters)
    made: dict[str, Any] = {}
    exec(f"def {like.__name__}({head}): return {{{pairs}}}", made)
    bind = made[like.__name__]

    def operation(*args: Any, **kwargs: Any) -> Any:
        try:
            given = bind(*args, **kwargs)
        except TypeError:
            signature.bind(*args, **kwargs)  # says it in fewer words
            raise
        try:
            return compute(given)
        except (TypeError, ValueError) as error:
            raise with_name(error, like.__name__, is_traced=is_compiling()) from None

    operation.__name__ = operation.__qualname__ = like.__name__
    operation.__module__ = package
    operation.__doc__ = f"Compute :func:`roipool.{like.__name__}` of {what}, with derivatives."
    operation.__signature__ = signature  # type: ignore[attr-defined]
    return operation


Compute = Callable[[Arguments], Any]


def public_functions(
    operation_of: Callable[[Op], Any],
    pyramid_operation_of: Callable[[Op], Any],
    volume_operation_of: Callable[[Op], Any],
    assign_levels: Compute,
    package: str,
    what: str,
    is_compiling: Callable[[], bool] = lambda: False,
) -> dict[str, Callable[..., Any]]:
    """Return a front end's functions by name.

    `operation_of` gives an object whose methods are named as the attributes of `Op.functions`, and
    take the arguments of those functions, by name, `pyramid_operation_of` one for an operation of
    several maps, and `volume_operation_of` one for an operation on volumes; the rest is that of
    :func:`with_signature_of`.
    """
    like = inspect.unwrap(multilevel.assign_levels)
    found = {"assign_levels": with_signature_of(like, assign_levels, package, what, is_compiling)}
    operations = [
        *((op, operation_of(op)) for op in OPS.values()),
        *((op, pyramid_operation_of(op)) for op in PYRAMID_OPS.values()),
        *((op, volume_operation_of(op)) for op in VOLUME_OPS.values()),
    ]
    for op, operation in operations:
        for attribute, name in op.functions.items():
            like = inspect.unwrap(getattr(numpy_functions(op), name))
            compute = getattr(operation, attribute)
            found[name] = with_signature_of(like, compute, package, what, is_compiling)
    return found


def numpy_functions(op: Op) -> ModuleType:
    """Return the module with the functions of an operation for NumPy arrays.

    Front ends rely on this much of it, which `tests/package/test_tables.py` checks:

    - it is ``roipool/ops/NAME.py``, where NAME is that of the forward, as are the functions in it;
    - its function ``definition`` takes the arguments that place bins and samples (`Op.placing`; the
      scale of one map, where there are several), and of those that choose a variant the ones that
      choose a definition; checks them; and returns the `Definition`. Their annotations, as text,
      are ``float``, ``int | Sequence[int]``, ``bool`` or ``str``. Of volumes it also takes the
      planes and the bins along depth, and options have the types ``Sequence[float]`` and
      ``Sequence[int]``, three each;
    - where it pools by a maximum whose rules are not the defaults, its constant ``RULES`` has them.
    """
    return importlib.import_module(f"roipool.ops.{op.forward}")
