"""Anybody's functions, called with NumPy arrays as they want them."""

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

AUTOGRAD = "autograd"  # stands for a backward: what torch differentiates
MAX_MESSAGE = 300
_FORM = "package.module:function or path/to/file.py:function"


class Misbehaviour(Exception):  # noqa: N818 - of the implementation, not of this program
    """The implementation did something else than return arrays.

    Parameters
    ----------
    kind : str
        What it is, in a word or two.
    text : str
        A sentence without a subject.
    """

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


def _module_of(name: str, folder: str) -> Any:
    """Import a module, which may lie in a folder: there it comes before an installed one."""
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
    sys.modules[name] = module  # dataclasses and pickles look there
    spec.loader.exec_module(module)
    return module


def loaded(name: str, folder: str = "") -> Callable[..., Any]:
    """Import a function by its name.

    Parameters
    ----------
    name : str
        ``package.module:function`` or ``path/to/file.py:function``; the function may have dots.
    folder : str, optional
        Where modules that are not installed may lie, and where a relative path starts. It comes
        last in the search path: of its files only the one that is named may stand in for an
        installed module.

    Raises
    ------
    ValueError
        If it is not so written, or names nothing that can be called.
    ImportError
        If the module cannot be imported.
    """
    place, mark, path = name.rpartition(":")
    if not (place and mark and path):
        raise ValueError(f"{name!r} is not of the form {_FORM}")
    if folder and folder not in sys.path:
        sys.path.append(folder)
    if place.endswith(".py"):
        found = _module_in_file(Path(folder, place))
    else:
        found = _module_of(place, folder) if folder else importlib.import_module(place)
    for part in path.split("."):
        if not hasattr(found, part):
            raise ValueError(f"{name!r}: {place} has no {path!r}")
        found = getattr(found, part)
    if not callable(found):
        raise ValueError(f"{name!r} is a {type(found).__name__}, not a function")
    return found


# ---- Arrays of several libraries


class NumpyArrays:
    """Arrays that an implementation takes, by default NumPy's.

    Parameters
    ----------
    device : str
        Where they lie.
    """

    devices: Sequence[str] = ("cpu",)

    def __init__(self, device: str) -> None:
        if device not in self.devices:
            raise ValueError(
                "device must be one of {}, got {!r}".format(", ".join(self.devices), device)
            )
        self.device = device

    def put(self, array: Any) -> Any:
        """Return a copy of a NumPy array in the implementation's form."""
        return array.copy()

    def get(self, array: Any) -> Any:
        """Return an array as NumPy's."""
        return np.asarray(array)


class TorchArrays(NumpyArrays):
    """Tensors of PyTorch."""

    devices: Sequence[str] = ("cpu", "cuda")

    def __init__(self, device: str) -> None:
        super().__init__(device)
        import torch

        if device == "cuda" and not torch.cuda.is_available():
            raise ValueError("device 'cuda': this torch finds none")
        self.torch = torch

    def put(self, array: Any) -> Any:
        """Return a tensor with memory of its own."""
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
    """Calls a forward and its gradients with NumPy arrays as they want them.

    Parameters
    ----------
    forward : callable
        Pools.
    backward, backward_boxes : callable, "autograd" or None
        The gradients with respect to the features and to the boxes; `AUTOGRAD` is what torch makes
        of the forward.
    arrays, device : str
        Of `ARRAYS`: what the functions take; and where it lies.
    may_write : bool
        Whether a function may write into its arguments, which are copies.

    Raises
    ------
    ValueError, ImportError
        If the arrays or the device are not to be had.
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
        self.last: Any = None  # its arguments

    def parameters(self, which: str) -> Any:
        """Return the names of a function's parameters, or None if they cannot be known."""
        found = self._signature(which)
        if found is None or any(one.kind == one.VAR_KEYWORD for one in found):
            return None
        return [one.name for one in found]

    def positions(self, which: str) -> Any:
        """Return the names of the parameters that can be passed by position, or None likewise."""
        found = self._signature(which)
        if found is None or any(one.kind == one.VAR_POSITIONAL for one in found):
            return None
        positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        return [one.name for one in found if one.kind in positional]

    def _signature(self, which: str) -> Any:
        if self.functions[which] in (None, AUTOGRAD):
            return None
        try:
            return list(inspect.signature(self.functions[which]).parameters.values())
        except (TypeError, ValueError):  # of C
            return None

    def call(self, which: str, given: Sequence[Any], options: dict[str, Any]) -> list[Any]:
        """Call "forward", "backward" or "backward_boxes".

        What torch differentiates is the last forward.

        Parameters
        ----------
        which : str
            The function.
        given : sequence of (str, value)
            Arguments by position, with their names for messages.
        options : dict
            Arguments by name.

        Returns
        -------
        list of ndarray

        Raises
        ------
        Misbehaviour
            Whatever the function did instead.
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
                found = self._differentiated(put["grad_output"])
            elif which == "backward_boxes" and self.functions[which] == AUTOGRAD:
                found = self._differentiated_by_boxes(put["grad_output"])
            else:
                found = self.functions[which](*positional, **{name: put[name] for name in options})
        except Misbehaviour:
            raise
        except Exception as error:  # noqa: BLE001 - functions raise whatever they like
            text = "{}: {}".format(type(error).__name__, " ".join(str(error).split()))
            raise Misbehaviour("raises", f"raises {text[:MAX_MESSAGE]}") from None
        results = found if isinstance(found, (tuple, list)) else [found]
        if which == "forward" and differentiable and results:
            self.graph = positional[0], results[0]
        if not self.may_write:
            self._check_unchanged(dict([*given, *options.items()]), put)
        return [self._result(one) for one in results]

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
        """Return the gradient of the boxes, the second argument, from a forward of its own.

        A function that cannot be differentiated by them may refuse boxes that need a gradient, and
        its other results are not to suffer from that.
        """
        given, options = self.last
        positional = [self._put(value) for _, value in given]
        boxes = positional[1].requires_grad_()
        found = self.functions["forward"](
            *positional, **{name: self._put(value) for name, value in options.items()}
        )
        pooled = found[0] if isinstance(found, (tuple, list)) else found
        return self._gradient(pooled, boxes, grad, "boxes")

    def _gradient(self, pooled: Any, of: Any, grad: Any, name: str) -> Any:
        if not pooled.requires_grad:
            raise Misbehaviour("has no gradient", "returns values that do not need a gradient")
        autograd = self.arrays.torch.autograd
        (gradient,) = autograd.grad([pooled], [of], [grad], allow_unused=True)
        if gradient is None:
            raise Misbehaviour("has no gradient", f"does not pass a gradient on to the {name}")
        return gradient

    def _result(self, found: Any) -> Any:
        text = f"returns a {type(found).__name__}, not an array"
        if not hasattr(found, "shape") or not hasattr(found, "dtype"):
            raise Misbehaviour("returns no array", text)
        try:
            array = np.asarray(self.arrays.get(found))
        except Exception:  # noqa: BLE001 - something that only looks like an array
            raise Misbehaviour("returns no array", text) from None
        if array.dtype.kind not in "fiub" and array.dtype.name != "bfloat16":
            raise Misbehaviour("returns no array", f"returns an array of dtype {array.dtype}")
        return array
