"""Docstrings of public functions, completed with the descriptions that many of them share.

A docstring says what differs from other functions. What it leaves out is added when the function is
defined, so that ``help`` and the site show every parameter. A parameter is described by

1. the function itself or, where that says "As in :func:`other`.", the other function;
2. for a gradient, `_Texts.of_gradients`, then its forward;
3. what others share: `_Texts.parameters` and, for an operation, `roi_align`.

A section "Returns" that is left out is the common one; the section "Raises" has the common errors
after those of the function itself.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

# numpydoc's sections, in its order.
_TITLES = ("Parameters", "Returns", "Raises", "See Also", "Notes", "Examples")
_SECTION = re.compile(r"^([A-Z][\w ]*)\n-{3,}\n", re.MULTILINE)
_ENTRY = re.compile(r"^(\w+(?:, \w+)*)( : .+)?\n((?: .*\n|\n)*)", re.MULTILINE)
_ELSEWHERE = re.compile(r"\s*As in :func:`(\w+)`\.\s*")
# The operation that describes parameters of all.
_MAIN = "roi_align"
# Endings of the argument of a gradient that is the shape of its result.
_SHAPES = ("_shape", "image_size")


class _Texts(NamedTuple):
    """What the functions of a package share."""

    # Descriptions of parameters, also of those that only gradients have.
    parameters: str
    of_gradients: str
    # Sections "Returns".
    returned: str
    returned_by_gradients: str
    returned_by_box_gradients: str


_OPERATIONS = _Texts(
    parameters="""\
features : ndarray
    Maps, an array of NumPy, CuPy, PyTorch, JAX or Dask: shape (N, C, H, W) or, with
    ``layout="NHWC"``, (N, H, W, C); float16, bfloat16, float32 or float64.
group_size : int or pair of int
    Groups of bins, (down, across); 0: as many as bins.
gamma : float
    Multiplies offsets: with 0.1, an offset of 1 moves a bin by a tenth of the box.
""",
    of_gradients="""\
grad_output : ndarray
    Gradient of the pooled values, shape (K, C, rows, columns) or (K, rows, columns, C);
    float16, bfloat16, float32 or float64.
features : ndarray
    The maps of the forward, in grad_output's dtype.
input_shape : sequence of int
    Shape of the features, in the order of `layout`.
out : ndarray, optional
    Array for the gradient, of shape `input_shape` and grad_output's dtype. It is overwritten.
""",
    returned="",
    returned_by_gradients="""\
ndarray
    Shape `{shape}`, in {gradient}'s dtype, summed in float32 (float64 for float64). Bitwise the
    same for any number of threads.
""",
    returned_by_box_gradients="""\
ndarray
    Shape (K, 4): the gradient by x1, y1, x2, y2 in image pixels; float64 for float64 maps,
    else float32. If `rois` is a sequence, the rows of its arrays follow each other.
""",
)


_FRAMEWORKS = _Texts(
    parameters="""\
input, inp, x, X, data, bottom, features : ndarray
    Maps, shape (N, C, H, W).
rois : array_like
    Shape (K, 5): batch index (cut to a whole number), x1, y1, x2, y2 in image pixels.
roi_indices, batch_indices : array_like of int
    Shape (K,): the image of each box.
output_size, outsize, out_size, output_shape : int or (int, int)
    Bins: rows and columns.
pooled_size, pooled_shape : (int, int)
    Bins: rows and columns.
pooled_h, pooled_w, pooled_height, pooled_width, outh, outw, output_height, output_width : int
    Bins: rows and columns.
spatial_scale : float
    Map cells per image pixel, kept in float32.
sampling_ratio : int
    Samples per bin and axis; 0 or less is adaptive.
aligned : bool
    Shift by half a cell.
output_dim : int
    Channels of the result.
return_argmax : bool
    Also return the argmax, which the backward needs.
name : str, optional
    Ignored: the name of the operator in a graph.
""",
    of_gradients="""\
grad_output, gy, out_grad, top_diff : ndarray
    Gradient of the pooled values, shape (K, C, rows, columns).
input_shape, x_shape, data_shape, bottom_shape : sequence of int
    Shape of the maps, (N, C, H, W).
argmax : ndarray of int
    The argmax from the forward.
""",
    returned="""\
ndarray
    Shape (K, C, rows, columns).
""",
    returned_by_gradients="""\
ndarray
    The gradient, of shape `{shape}`.
""",
    returned_by_box_gradients="",
)

_RAISED = """\
TypeError
    If an argument is of the wrong type.
ValueError
    If a shape or a value is invalid; the message says of which argument, and what is allowed.
"""
_RAISED_LATE = """\
    On a GPU, the indices of images are only checked after ``set_debug(True)``; otherwise, a box
    with an invalid one pools nothing.
"""
_RAISED_LAST = """\
MemoryError
    If the result, or memory for the computation, cannot be allocated.
"""


class _Entry(NamedTuple):
    """The description of one parameter, or of several that share it."""

    names: tuple[str, ...]
    type: str
    text: str


def complete(function: Callable[..., Any]) -> None:
    """Add what the docstring of a function leaves out; without docstrings (``-OO``) do nothing."""
    if not function.__doc__:
        return
    texts = _FRAMEWORKS if function.__module__.startswith("roipool.compat.") else _OPERATIONS
    forward = _forward_of(function)
    named = _parameter_names(function)
    summary, written = _split(function.__doc__)
    sections = {**written}
    if named:
        sections["Parameters"] = "".join(_described(named, _sources(function, forward, texts)))
        sections["Raises"] = sections.get("Raises", "").rstrip() + "\n" + _raised(named, texts)
    sections.setdefault("Returns", _returned(named, texts) if forward else texts.returned)
    function.__doc__ = _joined(summary, sections)


def _forward_of(function: Callable[..., Any]) -> Callable[..., Any] | None:
    """Return the function whose gradient this one returns, by their names."""
    start, gradient, _ = function.__name__.partition("_backward")
    return function.__globals__.get(start) if gradient else None


def _parameter_names(function: Callable[..., Any]) -> list[str]:
    code = function.__code__
    return list(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])


def _sources(
    function: Callable[..., Any], forward: Callable[..., Any] | None, texts: _Texts
) -> Iterator[Mapping[str, _Entry]]:
    """Yield where a function's parameters are described, the nearest first."""
    own = _parameters(function)
    for entry in {*own.values()}:  # before `own` itself, where these only name a function
        elsewhere = _ELSEWHERE.fullmatch(entry.text)
        if elsewhere:
            other = _parameters(_named(function, elsewhere[1]))
            yield {name: other[name] for name in entry.names}
    yield own
    if forward is not None:
        yield _entries(texts.of_gradients)
        yield _parameters(forward)
    yield _entries(texts.parameters)
    if texts is _OPERATIONS and function.__name__ != _MAIN:
        yield _parameters(_named(function, _MAIN))


def _described(named: list[str], sources: Iterator[Mapping[str, _Entry]]) -> Iterator[str]:
    """Yield the descriptions of these parameters, in their order."""
    known: dict[str, _Entry] = {}
    for source in sources:
        known = {**source, **known}
    found: dict[_Entry, list[str]] = {}
    for name in named:
        if name in known:
            found.setdefault(known[name], []).append(name)
    for entry, names in found.items():
        yield f"{', '.join(names)}{entry.type}\n{entry.text}"


def _named(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Return the function of this name: of a function's module, or else an operation."""
    here = function.__globals__.get(name)
    return here if callable(here) else getattr(importlib.import_module(f"roipool.ops.{name}"), name)


def _returned(named: list[str], texts: _Texts) -> str:
    """Return the result of a gradient: of the shape that an argument says, or of the boxes."""
    shapes = [name for name in named if name.endswith(_SHAPES)]
    if not shapes:
        return texts.returned_by_box_gradients
    return texts.returned_by_gradients.format(shape=shapes[0], gradient=named[0])


def _raised(named: list[str], texts: _Texts) -> str:
    """Return the errors of all functions."""
    late = texts is _OPERATIONS and not {"batch_indices", "box_indices"}.isdisjoint(named)
    return _RAISED + (_RAISED_LATE if late else "") + _RAISED_LAST


def _parameters(function: Callable[..., Any]) -> Mapping[str, _Entry]:
    return _entries(_split(function.__doc__ or "")[1].get("Parameters", ""))


@functools.lru_cache(16)
def _entries(section: str) -> Mapping[str, _Entry]:
    """Return the descriptions of a section of parameters, by name."""
    entries = (
        _Entry(tuple(title.split(", ")), kind, f"{text.rstrip()}\n")
        for title, kind, text in _ENTRY.findall(f"{section.rstrip()}\n")
    )
    return {name: entry for entry in entries for name in entry.names}


@functools.lru_cache(4)
def _split(docstring: str) -> tuple[str, Mapping[str, str]]:
    """Return what stands before the sections of a docstring, and the sections by title."""
    margin = docstring[docstring.rfind("\n") :] if "\n" in docstring else "\n"
    is_margin = margin.isspace()  # as with the closing quotes on a line; `cleandoc` takes longer
    text = docstring.replace(margin, "\n") if is_margin else inspect.cleandoc(docstring)
    summary, *parts = _SECTION.split(text)
    return summary, dict(zip(parts[::2], parts[1::2], strict=True))


def _joined(summary: str, sections: Mapping[str, str]) -> str:
    """Return a docstring of these sections, in numpydoc's order."""
    texts = (
        f"{title}\n{'-' * len(title)}\n{sections[title].strip()}"
        for title in sorted(sections, key=_TITLES.index)
        if sections[title]
    )
    return "\n\n".join([summary.rstrip(), *texts]) + "\n"
