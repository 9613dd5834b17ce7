"""Calls arbitrary functions with the arrays of their library."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .protocol import dtype_of

__all__ = ["ARRAYS", "AUTOGRAD", "MAX_MESSAGE", "Caller", "Misbehaviour", "loaded"]

AUTOGRAD = "autograd"  # in place of a backward: differentiate the forward with torch
MAX_MESSAGE = 300
_FORM = "package.module:function or path/to/file.py:function"


class Misbehaviour(Exception):  # noqa: N818 - an error of the implementation, not of this program
    """Raised if an implementation does not return arrays."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


def _module_of(name: str, folder: str) -> Any:
    """Import a module; one in `folder` takes precedence over an installed module."""
    top = name.partition(".")[0]
    spec = importlib.machinery.PathFinder.find_spec(top, [folder])
    if top not in sys.modules and spec is not None and spec.origin and spec.loader:
        module = importlib.util.module_from_spec(spec)
        sys.modules[top] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[top]
            raise
    return importlib.import_module(name)


def _module_in_file(path: Path) -> Any:
    """Run a file as a module."""
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    name = f"_roipool_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, str(path))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look it up
    spec.loader.exec_module(module)
    return module


def loaded(name: str, folder: str = "") -> Callable[..., Any]:
    """Import a function by its name.

    Parameters
    ----------
    name : str
        ``package.module:function`` or ``path/to/file.py:function``; the function may have dots.
    folder : str, optional
        Folder of modules that are not installed, and base of relative paths. It is last in the
        search path: only the named module takes precedence over an installed one.

    Raises
    ------
    ValueError
        If the name has another form, or does not name a callable.
    ImportError
        If the module cannot be imported.
    """
    place, mark, path = name.rpartition(":")
    if not (place and mark and path):
        raise ValueError(f"{name!r} is not of the form {_FORM}")
    if folder and folder not in sys.path:
        sys.path.append(folder)
    if place.endswith(".py"):
        target = _module_in_file(Path(folder, place))
    else:
        target = _module_of(place, folder) if folder else importlib.import_module(place)
    for part in path.split("."):
        if not hasattr(target, part):
            raise ValueError(f"{name!r}: {place} has no {path!r}")
        target = getattr(target, part)
    if not callable(target):
        raise ValueError(f"{name!r} is a {type(target).__name__}, not a function")
    return target


# ---- Arrays of several libraries


class NumpyArrays:
    """The arrays of an implementation; those of NumPy, unless a subclass overrides it."""

    devices: Sequence[str] = ("cpu",)

    def __init__(self, device: str) -> None:
        if device not in self.devices:
            raise ValueError(
                "device must be one of {}, got {!r}".format(", ".join(self.devices), device)
            )
        self.device = device

    def put(self, array: Any) -> Any:
        """Copy a NumPy array to the implementation's library and device."""
        return array.copy()

    def get(self, array: Any) -> Any:
        """Convert an array to NumPy."""
        return np.asarray(array)


class TorchArrays(NumpyArrays):
    """Tensors of PyTorch."""

    devices: Sequence[str] = ("cpu", "cuda")

    def __init__(self, device: str) -> None:
        super().__init__(device)
        import torch

        if device == "cuda" and not torch.cuda.is_available():
            raise ValueError("device 'cuda': torch finds no CUDA device")
        self.torch = torch

    def put(self, array: Any) -> Any:
        """Return a tensor that shares no memory."""
        if array.dtype.name == "bfloat16":
            half = self.torch.from_numpy(array.copy().view(np.int16)).view(self.torch.bfloat16)
            return half.to(self.device)
        return self.torch.from_numpy(array.copy()).to(self.device)

    def get(self, array: Any) -> Any:
        """Return a tensor's values."""
        if not isinstance(array, self.torch.Tensor):
            return np.asarray(array)
        host = array.detach().cpu().contiguous()
        if host.dtype == self.torch.bfloat16:
            return host.view(self.torch.int16).numpy().view(dtype_of("bfloat16"))
        return host.numpy()


class CupyArrays(NumpyArrays):
    """Arrays of CuPy."""

    devices: Sequence[str] = ("cuda",)

    def __init__(self, device: str) -> None:
        super().__init__(device)
        import cupy

        self.cupy = cupy

    def put(self, array: Any) -> Any:
        """Return a copy on the GPU."""
        return self.cupy.asarray(array)

    def get(self, array: Any) -> Any:
        """Return a copy on the host."""
        return self.cupy.asnumpy(array)


class JaxArrays(NumpyArrays):
    """Arrays of JAX."""

    devices: Sequence[str] = ("cpu", "cuda")

    def __init__(self, device: str) -> None:
        super().__init__(device)
        import jax

        jax.config.update("jax_enable_x64", True)
        self.jax, self.place = jax, jax.devices("gpu" if device == "cuda" else "cpu")[0]

    def put(self, array: Any) -> Any:
        """Return a copy on the device."""
        return self.jax.device_put(array, self.place)


ARRAYS = {"numpy": NumpyArrays, "torch": TorchArrays, "cupy": CupyArrays, "jax": JaxArrays}


# ---- Calls


class Caller:
    """Calls a forward and its gradients with converted NumPy arrays.

    Parameters
    ----------
    backward, backward_boxes : callable, "autograd" or None
        The gradients with respect to the features and to the boxes; `AUTOGRAD` differentiates the
        forward with torch.
    arrays, device : str
        A key of `ARRAYS`, and the device of the arrays.
    may_write : bool
        Whether a function may modify its arguments, which are copies.

    Raises
    ------
    ValueError, ImportError
        If the arrays or the device are not available.
    """

    def __init__(
        self,
        forward: Any,
        backward: Any,
        backward_boxes: Any,
        arrays: str,
        device: str,
        may_write: bool = False,
    ) -> None:
        names = ("forward", "backward", "backward_boxes")
        self.functions = dict(zip(names, (forward, backward, backward_boxes)))
        self.may_write = may_write
        for name in ("backward", "backward_boxes"):
            if self.functions[name] == AUTOGRAD and arrays != "torch":
                raise ValueError(f"{name} 'autograd' needs arrays 'torch', got {arrays!r}")
        self.arrays: Any = ARRAYS[arrays](device)
        self.graph: Any = None  # features and pooled values of the last forward
        self.last: Any = None  # the arguments of the last forward

    def parameters(self, which: str) -> Any:
        """Return the names of a function's parameters, or None if they are unknown."""
        signature = self._signature(which)
        if signature is None or any(each.kind == each.VAR_KEYWORD for each in signature):
            return None
        return [parameter.name for parameter in signature]

    def positions(self, which: str) -> Any:
        """Return the names of positional parameters, or None if they are unknown."""
        signature = self._signature(which)
        if signature is None or any(each.kind == each.VAR_POSITIONAL for each in signature):
            return None
        positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        return [parameter.name for parameter in signature if parameter.kind in positional]

    def _signature(self, which: str) -> Any:
        if self.functions[which] in (None, AUTOGRAD):
            return None
        try:
            return list(inspect.signature(self.functions[which]).parameters.values())
        except (TypeError, ValueError):  # a function written in C
            return None

    def call(self, which: str, given: Sequence[Any], options: dict[str, Any]) -> list[Any]:
        """Call "forward", "backward" or "backward_boxes".

        Autograd differentiates the last forward.

        Parameters
        ----------
        given : sequence of (str, value)
            Positional arguments, with their names for messages.
        options : dict
            Keyword arguments.

        Raises
        ------
        Misbehaviour
            If the function does not return arrays.
        """
        put = {name: self._put(value) for name, value in [*given, *options.items()]}
        positional = [put[name] for name, _ in given]
        differentiable = self.functions["backward"] == AUTOGRAD
        if which == "forward":
            self.last = given, options
            if differentiable:
                positional[0].requires_grad_()
        try:
            if which == "backward" and differentiable:
                returned = self._differentiated(put["grad_output"])
            elif which == "backward_boxes" and self.functions[which] == AUTOGRAD:
                returned = self._differentiated_by_boxes(put["grad_output"])
            else:
                by_name = {name: put[name] for name in options}
                returned = self.functions[which](*positional, **by_name)
        except Misbehaviour:
            raise
        except Exception as error:  # noqa: BLE001 - functions may raise anything
            text = "{}: {}".format(type(error).__name__, " ".join(str(error).split()))
            raise Misbehaviour("raises", f"raises {text[:MAX_MESSAGE]}") from None
        results = returned if isinstance(returned, (tuple, list)) else [returned]
        if which == "forward" and differentiable and results:
            self.graph = positional[0], results[0]
        if not self.may_write:
            self._check_unchanged(dict([*given, *options.items()]), put)
        return [self._result(result) for result in results]

    def _check_unchanged(self, given: dict[str, Any], put: dict[str, Any]) -> None:
        for name, value in given.items():
            if isinstance(value, np.ndarray) and self.arrays.get(put[name]).tobytes() != (
                value.tobytes()
            ):
                raise Misbehaviour("writes into its input", f"writes into its {name}")

    def _put(self, value: Any) -> Any:
        return self.arrays.put(value) if isinstance(value, np.ndarray) else value

    def _differentiated(self, grad: Any) -> Any:
        features, pooled = self.graph
        return self._gradient(pooled, features, grad, "features")

    def _differentiated_by_boxes(self, grad: Any) -> Any:
        """Return the gradient of the boxes, the second argument, from a separate forward.

        A function without this gradient may reject boxes that require one, which must not affect
        its other results.
        """
        given, options = self.last
        positional = [self._put(value) for _, value in given]
        boxes = positional[1].requires_grad_()
        returned = self.functions["forward"](
            *positional, **{name: self._put(value) for name, value in options.items()}
        )
        pooled = returned[0] if isinstance(returned, (tuple, list)) else returned
        return self._gradient(pooled, boxes, grad, "boxes")

    def _gradient(self, pooled: Any, of: Any, grad: Any, name: str) -> Any:
        if not pooled.requires_grad:
            raise Misbehaviour("has no gradient", "returns values that do not need a gradient")
        autograd = self.arrays.torch.autograd
        (gradient,) = autograd.grad([pooled], [of], [grad], allow_unused=True)
        if gradient is None:
            raise Misbehaviour("has no gradient", f"has no gradient with respect to the {name}")
        return gradient

    def _result(self, result: Any) -> Any:
        text = f"returns a {type(result).__name__}, not an array"
        if not hasattr(result, "shape") or not hasattr(result, "dtype"):
            raise Misbehaviour("returns no array", text)
        try:
            array = np.asarray(self.arrays.get(result))
        except Exception:  # noqa: BLE001 - it only looks like an array
            raise Misbehaviour("returns no array", text) from None
        if array.dtype.kind not in "fiub" and array.dtype.name != "bfloat16":
            raise Misbehaviour("returns no array", f"returns an array of dtype {array.dtype}")
        return array
