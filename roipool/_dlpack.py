"""Arrays of any other library, by DLPack or an array interface: through NumPy or CuPy and back.

Memory is shared where their library allows it, in both directions. No gradient goes this way: an
array that asks for one is an error.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from roipool._arrays import LIBRARY_OF

# DLPack's numbers of devices whose memory the host can read, and CUDA's.
HOST_DEVICES = (1, 3)
CUDA_DEVICES = (2, 13)

DLPACK = "__dlpack__"
INTERFACES = ("__array_interface__", "__cuda_array_interface__")

ACCEPTED = (
    "a NumPy or CuPy array, a tensor of PyTorch, an array of JAX, or another library's with "
    "__dlpack__, __array_interface__ or __cuda_array_interface__"
)


def is_exchangeable(array_type: type) -> bool:
    """Return whether values of a type hand over memory; scalars of NumPy are numbers."""
    if issubclass(array_type, np.generic):
        return False
    return any(hasattr(array_type, name) for name in (DLPACK, *INTERFACES))


def call(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Compute a public function of NumPy or CuPy arrays; its results are of the caller's library.

    Raises
    ------
    TypeError
        If arrays are of several libraries, need a gradient, hold no values, or are where neither
        NumPy nor CuPy can read them.
    ValueError
        If they are on several devices.
    """
    arrays = [each for each in _arrays_in([*args, *kwargs.values()]) if _is_foreign(each)]
    packages = {_package(each): _type_name(each) for each in arrays}
    if len(packages) > 1:
        raise TypeError(
            f"{function.__name__}: arrays must all be of one library, got "
            f"{' and '.join(packages.values())}"
        )
    _check_devices(function, arrays)
    handed: dict[int, Any] = {}  # by the caller's arrays: `out` comes back as it is
    positional = [_handed_over(function, value, handed) for value in args]
    named = {name: _handed_over(function, value, handed) for name, value in kwargs.items()}
    results = function(*positional, **named)
    originals = {id(handed[id(each)]): each for each in arrays if id(each) in handed}
    if isinstance(results, (tuple, list)):
        return type(results)(_returned(each, arrays[0], originals) for each in results)
    return _returned(results, arrays[0], originals)


def _arrays_in(values: Sequence[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from value
        else:
            yield value


def _check_devices(function: Callable[..., Any], arrays: Sequence[Any]) -> None:
    """Check that arrays are on one device, as far as they say where they are."""
    devices = [each.device for each in arrays if getattr(each, "device", None) is not None]
    others = [str(each) for each in devices if each != devices[0]]
    if others:
        raise ValueError(
            f"{function.__name__}: arrays must all be on one device, got {devices[0]} and "
            f"{others[0]}"
        )


def _is_foreign(value: Any) -> bool:
    return LIBRARY_OF[type(value)] is None and is_exchangeable(type(value))


def _package(value: Any) -> str:
    return type(value).__module__.partition(".")[0]


def _type_name(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


# ---- To NumPy or CuPy


def _handed_over(function: Callable[..., Any], value: Any, handed: dict[int, Any]) -> Any:
    """Return an argument with NumPy or CuPy arrays in the place of others."""
    if isinstance(value, (list, tuple)) and any(map(_is_foreign, value)):
        return [_handed_over(function, part, handed) for part in value]
    if not _is_foreign(value):
        return value
    if id(value) not in handed:
        _check_gradient(function, value)
        handed[id(value)] = _memory(function, value)
    return handed[id(value)]


def _check_gradient(function: Callable[..., Any], value: Any) -> None:
    # Paddle's name for the opposite: True for what needs no gradient.
    if getattr(value, "requires_grad", False) is True or (
        getattr(value, "stop_gradient", True) is False
    ):
        raise TypeError(
            f"{function.__name__}: a {_type_name(value)} that requires a gradient would lose it "
            "here: detach it. Tensors of PyTorch and arrays of JAX have gradients"
        )


def _memory(function: Callable[..., Any], value: Any) -> Any:
    if not hasattr(value, DLPACK):
        on_host = hasattr(value, INTERFACES[0])
        return np.asarray(value) if on_host else _cupy(function, value).asarray(value)
    try:
        device = int(value.__dlpack_device__()[0])
        if device in CUDA_DEVICES:
            return _cupy(function, value).from_dlpack(value)
        if device in HOST_DEVICES:
            return _host_memory(function, value)
    except (AttributeError, BufferError, NotImplementedError, RuntimeError, ValueError) as error:
        raise TypeError(
            f"{function.__name__}: a {_type_name(value)} hands over no values ({error}). Within a "
            "compiled or lazy graph, call roipool by the library's own way to call NumPy"
        ) from None
    raise TypeError(
        f"{function.__name__}: a {_type_name(value)} is on a device that neither NumPy nor CuPy "
        "reads; copy it to the host"
    )


def _host_memory(function: Callable[..., Any], value: Any) -> Any:
    if "bfloat16" not in str(getattr(value, "dtype", "")):  # pyarrow's tensors have none
        return np.from_dlpack(value)
    array = np.asarray(value)  # NumPy's DLPack has no bfloat16
    if array.dtype.name != "bfloat16":
        raise TypeError(
            f"{function.__name__}: {_package(value)} hands bfloat16 to NumPy as {array.dtype}; "
            "convert it to float32"
        )
    return array


def _cupy(function: Callable[..., Any], value: Any) -> Any:
    try:
        return importlib.import_module("cupy")
    except ImportError:
        raise TypeError(
            f"{function.__name__}: a {_type_name(value)} is on a GPU, for which CuPy must be "
            "installed; or copy it to the host"
        ) from None


# ---- And back


def _returned(result: Any, like: Any, originals: Mapping[int, Any]) -> Any:
    """Return a result as an array of the library of `like`; as it is where that has no way."""
    if id(result) in originals:
        return originals[id(result)]
    if LIBRARY_OF[type(result)] is None:
        return result
    if hasattr(like, "__array_namespace__"):
        back = like.__array_namespace__().from_dlpack(result)
        is_elsewhere = hasattr(back, "to_device") and back.device != like.device
        return back.to_device(like.device) if is_elsewhere else back
    library: Any = sys.modules.get(_package(like))
    if hasattr(library, "from_dlpack"):
        return library.from_dlpack(result)
    if _package(like) == "tensorflow":
        if result.dtype.name == "bfloat16":
            return library.convert_to_tensor(result)
        return library.experimental.dlpack.from_dlpack(result.__dlpack__())
    if _package(like) == "paddle":
        return library.utils.dlpack.from_dlpack(result)
    return result
