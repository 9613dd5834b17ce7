"""Programs that round as NumPy does, whatever XLA makes of their arithmetic.

XLA's compiler for CPUs contracts a product and a sum to one operation, which rounds once, and turns
a division by one number into a product with its reciprocal. Coordinates of boxes, and with them
samples, would differ from those of NumPy. So products and quotients of floats within a program of
roipool are primitives of their own, which are computed so that the compiler can do neither.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Jaxpr, Literal, Primitive
from jax.interpreters import ad, batching, mlir

from roipool.jax._primitives import equally_varying

Array = Any


def _product(first: Array, second: Array) -> Array:
    """Return a product, as something else than a product: NaN is itself twice."""
    product = jax.lax.mul(first, second)
    is_number = jax.lax.eq(product, product)
    return jax.lax.select(is_number, product, jax.lax.add(product, product))


def _quotient(first: Array, second: Array) -> Array:
    """Return a quotient by a divisor that is not the same number everywhere: NaN by NaN is NaN."""
    return jax.lax.div(first, jax.lax.select(jax.lax.eq(first, first), second, first))


def _batch(primitive: Primitive, operands: Any, dims: Any) -> tuple[Array, int]:
    """Return a batch of results, in the first axis, from operands of which one may have none."""
    (size,) = {each.shape[dim] for each, dim in zip(operands, dims, strict=True) if dim is not None}
    full = [
        jnp.broadcast_to(each, (size, *each.shape)) if dim is None else jnp.moveaxis(each, dim, 0)
        for each, dim in zip(operands, dims, strict=True)
    ]
    return primitive.bind(*equally_varying(full)), 0


def _primitive(name: str, compute: Callable[..., Array]) -> Primitive:
    primitive = Primitive(f"roipool_{name}")
    primitive.def_impl(jax.jit(compute))
    primitive.def_abstract_eval(lambda first, second: first.update(weak_type=False))
    mlir.register_lowering(primitive, mlir.lower_fun(compute, multiple_results=False))
    batching.primitive_batchers[primitive] = functools.partial(_batch, primitive)
    return primitive


PRODUCT, QUOTIENT = _primitive("product", _product), _primitive("quotient", _quotient)

ad.defbilinear(
    PRODUCT,
    lambda cotangent, first, second: PRODUCT.bind(cotangent, second),
    lambda cotangent, first, second: PRODUCT.bind(cotangent, first),
)
ad.defjvp2(
    QUOTIENT,
    lambda change, quotient, first, second: QUOTIENT.bind(change, second),
    lambda change, quotient, first, second: PRODUCT.bind(
        change, jax.lax.neg(QUOTIENT.bind(quotient, second))
    ),
)
ad.primitive_transposes[QUOTIENT] = lambda cotangent, first, second: (
    QUOTIENT.bind(cotangent, second),
    None,
)

_OWN = {"mul": PRODUCT, "div": QUOTIENT}
_CALLS = ("pjit", "jit", "closed_call")


def evaluate(program: Jaxpr, constants: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
    """Return the results of a program for arguments, with products and quotients of its own."""
    known = dict(zip((*program.constvars, *program.invars), (*constants, *arguments), strict=True))

    def value(variable: Any) -> Any:
        return variable.val if isinstance(variable, Literal) else known[variable]

    for equation in program.eqns:
        operands = [value(each) for each in equation.invars]
        found = _compute(equation, operands)
        known.update(zip(equation.outvars, found, strict=True))
    return [value(each) for each in program.outvars]


def _compute(equation: Any, operands: list[Any]) -> list[Any]:
    name, kind = equation.primitive.name, equation.outvars[0].aval
    if name in _CALLS:
        inner = equation.params["jaxpr" if "jaxpr" in equation.params else "call_jaxpr"]
        if _has_own(inner.jaxpr):
            return evaluate(inner.jaxpr, inner.consts, operands)
    elif name in _OWN and jnp.issubdtype(kind.dtype, jnp.floating):
        full = [jnp.broadcast_to(jnp.asarray(each, kind.dtype), kind.shape) for each in operands]
        return [_OWN[name].bind(*equally_varying(full))]
    parameters = equation.primitive.get_bind_params(equation.params)
    functions, parameters = parameters if isinstance(parameters, tuple) else ((), parameters)
    found = equation.primitive.bind(*functions, *operands, **parameters)
    return found if equation.primitive.multiple_results else [found]


def _has_own(program: Jaxpr) -> bool:
    """Return whether a program multiplies or divides floats."""
    for equation in program.eqns:
        name = equation.primitive.name
        if name in _OWN and jnp.issubdtype(equation.outvars[0].aval.dtype, jnp.floating):
            return True
        inner = equation.params.get("jaxpr") or equation.params.get("call_jaxpr")
        if name in _CALLS and inner is not None and _has_own(inner.jaxpr):
            return True
    return False
