"""Arrays of any other library, by DLPack or an array interface: through NumPy or CuPy and back.

Memory is shared where their library allows it, in both directions. No gradient goes this way: an
array that asks for one is an error.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from roipool._arrays import LIBRARY_OF, parts_of
from roipool._gradients import default_of, named

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
    for name, value in named(function, args, kwargs):
        for each in _arrays_in(value):
            _check_gradient(function, name, each)
    exchange = Exchange(function, args, kwargs)
    return exchange.back(function(*exchange.args, **exchange.kwargs))


class Exchange:
    """The arguments of a call, with NumPy or CuPy arrays in the place of others.

    Parameters
    ----------
    function, args, kwargs
        The call.
    plain : callable
        Returns an array of the caller's library without its gradient.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        plain: Callable[[Any], Any] = lambda array: array,
    ) -> None:
        found = [each for _, value in named(function, args, kwargs) for each in _arrays_in(value)]
        packages = {_package(each): _type_name(each) for each in found}
        if len(packages) > 1:
            raise TypeError(
                f"{function.__name__}: arrays must all be of one library, got "
                f"{' and '.join(packages.values())}"
            )
        _check_devices(function, found)
        by_id = {id(each): each for each in found}
        handed = {key: _memory(function, plain(each)) for key, each in by_id.items()}
        self.args = [_replaced(value, handed) for value in args]
        self.kwargs = {name: _replaced(value, handed) for name, value in kwargs.items()}
        self._function, self._plain, self._like = function, plain, found[0]
        self._originals = {id(memory): by_id[key] for key, memory in handed.items()}

    def original(self, array: Any) -> Any:
        """Return the caller's array that handed over this one; None if it is the caller's own."""
        return self._originals.get(id(array))

    def back(self, results: Any) -> Any:
        """Return results as arrays of the caller's library; an `out` comes back as it was."""
        return _returned(results, self._like, self._originals)

    def memory(self, array: Any) -> Any:
        """Return the memory of another array of the library, such as a gradient."""
        return _memory(self._function, self._plain(array))


class GradientCall:
    """A call with its gradients, for a library with a function for custom gradients.

    The function's forward returns `results`, its backward `gradients` with respect to `arrays`.

    Attributes
    ----------
    arrays : list
        The caller's arrays among the arguments.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        plain: Callable[[Any], Any],
    ) -> None:
        self._exchange = Exchange(function, args, kwargs, plain)
        self._call = default_of(function).of(self._exchange.args, self._exchange.kwargs)
        originals = [self._exchange.original(each) for each in self._call.arrays]
        self._is_own = [each is not None for each in originals]
        self.arrays = [each for each in originals if each is not None]
        self._more: Sequence[Any] = ()

    def results(self) -> Any:
        """Return all results of the forward."""
        found = self._call.results(self._call.arrays)
        self._more = found[1:] if isinstance(found, tuple) else ()
        return self._exchange.back(found)

    def asked(self, results: Any) -> Any:
        """Return the results that the caller asked for."""
        return self._call.asked(results)

    def gradients(self, gradient: Any, needed: Sequence[bool]) -> list[Any]:
        """Return the gradient with respect to each array, None where it is not needed."""
        wanted = iter(needed)
        is_needed = [own and next(wanted) for own in self._is_own]
        memory = self._exchange.memory(gradient)
        found = self._call.gradients(memory, self._call.arrays, self._more, is_needed)
        own = [each for each, is_own in zip(found, self._is_own, strict=True) if is_own]
        return [self._exchange.back(each) for each in own]


def _arrays_in(value: Any) -> list[Any]:
    """Return the arrays of other libraries that an argument is, or a sequence or mapping holds."""
    parts = value.values() if isinstance(value, dict) else parts_of(value)
    return [part for part in parts if _is_foreign(part)]


def _replaced(value: Any, handed: Mapping[int, Any]) -> Any:
    """Return an argument with NumPy or CuPy arrays in the place of others."""
    if isinstance(value, dict):
        return {name: handed.get(id(part), part) for name, part in value.items()}
    if isinstance(value, (list, tuple)) and any(map(_is_foreign, value)):
        return [handed.get(id(part), part) for part in value]
    return handed.get(id(value), value)


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


def _check_gradient(function: Callable[..., Any], name: str, value: Any) -> None:
    # Paddle's name for the opposite: True for what needs no gradient.
    if getattr(value, "requires_grad", False) is True or (
        getattr(value, "stop_gradient", True) is False
    ):
        raise TypeError(
            f"{function.__name__}: {name} must not be a {_type_name(value)} that requires a "
            "gradient, which it would lose: detach it. Tensors of PyTorch and arrays of JAX have "
            "gradients"
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
            f"{function.__name__}: a {_type_name(value)} has no readable values ({error}). Inside "
            "a compiled graph, use the library's callback, such as tf.numpy_function"
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
    """Return results as arrays of the library of `like`; as they are where that has no way."""
    if isinstance(result, (tuple, list)):
        return type(result)(_returned(each, like, originals) for each in result)
    if isinstance(result, dict):
        return {name: _returned(each, like, originals) for name, each in result.items()}
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
