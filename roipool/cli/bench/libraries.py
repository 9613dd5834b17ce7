"""Other libraries' operators, made ready to be timed: a class for each.

To add a library, write its class and list it in `LIBRARIES`. It is imported when an object is made
of the class, never before.

This file imports nothing but NumPy and keeps to what Python 3.8 understands: the benchmark harness
of the source tree runs it in the environments of old libraries, too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np

__all__ = ["LIBRARIES", "Absent", "Level", "Library", "Task", "opened", "prepared"]


class Level(NamedTuple):
    """One call of an operator: a map and the boxes pooled from it.

    Attributes
    ----------
    features : ndarray
        In the task's layout.
    rois : (K, 5) float32 or float64 ndarray
        Rows ``[image, x1, y1, x2, y2]`` in pixels, sorted by image; for crop_and_resize
        ``[image, y1, x1, y2, x2]``, normalised.
    grad : ndarray or None
        The gradient of the output, for a backward.
    scale : float
        Map cells per pixel.
    """

    features: Any
    rois: Any
    grad: Any
    scale: float


class Task(NamedTuple):
    """What is timed: one operation on one or several levels.

    Attributes
    ----------
    operation : {"roi_align", "roi_pool", "crop_and_resize"}
        Its forward, or its backward with respect to the features.
    backward : bool
        Which of the two.
    mode : {"avg", "max"}
        Of roi_align.
    argmax : bool
        Whether roi_pool's forward must also return the argmax, as training needs it.
    output_size : tuple of int
        Rows and columns of bins.
    sampling_ratio : int
        Of roi_align; 0 is adaptive.
    aligned : bool
        Of roi_align.
    layout : {"NCHW", "NHWC"}
        Of the features and the output.
    levels : list of Level
        The calls that make up one round.
    """

    operation: str
    backward: bool
    mode: str
    argmax: bool
    output_size: tuple[int, int]
    sampling_ratio: int
    aligned: bool
    layout: str
    levels: list[Level]


class Absent(Exception):  # noqa: N818 - it is an answer, not an error
    """A library does not take part; the message says why."""


class Library:
    """A library: what it offers, and how it is called; a subclass writes `level` and `arrays`.

    Parameters
    ----------
    threads : int
        How many it may use.
    device : {"cpu", "cuda"}
        Where its arrays lie.

    Raises
    ------
    Absent
        If it is not installed, or cannot compute there.
    """

    modules: tuple[str, ...] = ()
    operations: tuple[str, ...] = ("roi_align", "roi_pool")
    layouts: tuple[str, ...] = ("NCHW",)
    dtypes: tuple[str, ...] = ("float16", "float32", "float64")
    has_gradients = True
    # Why results of a type lie further apart than its tolerance, where that is known.
    remarks: ClassVar[dict[str, str]] = {}

    def __init__(self, threads: int, device: str = "cpu") -> None:
        self.threads = threads
        if device != "cpu":
            raise Absent("is compared on the CPU only")

    @property
    def version(self) -> str:
        """The version, or several, of the packages it consists of."""
        return ", ".join(f"{m} {_release(sys.modules[m].__version__)}" for m in self.modules)

    @classmethod
    def check(cls, task: Task) -> None:
        """Raise `Absent` for what the library does not have, before any work."""
        dtype = task.levels[0].features.dtype.name
        if task.operation not in cls.operations:
            raise Absent(f"has no {task.operation}")
        if task.mode != "avg":
            raise Absent("has no roi_align that takes the maximum of whole samples")
        if task.backward and not cls.has_gradients:
            raise Absent("has no gradients")
        if task.layout not in cls.layouts:
            raise Absent(f"takes {cls.layouts[0]} only")
        if dtype not in cls.dtypes:
            raise Absent(f"takes no {dtype}")

    def prepare(self, task: Task) -> Callable[[], list[Any]]:
        """Build everything that is not to be timed; return the call that is."""
        calls = [self.level(task, level) for level in task.levels]
        return lambda: [call() for call in calls]

    def level(self, task: Task, level: Level) -> Callable[[], Any]:
        """Return the call for one level."""
        raise NotImplementedError

    def arrays(self, task: Task, results: list[Any]) -> list[Any]:
        """Turn what the call returned into NumPy arrays in the task's layout."""
        return results


class Torch(Library):
    """A library of operators for torch."""

    def __init__(self, threads: int, device: str = "cpu") -> None:
        import torch

        if device == "cuda" and not torch.cuda.is_available():
            raise Absent("this torch finds no CUDA device")
        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        self.torch, self.device = torch, device

    def _tensor(self, task: Task, array: Any) -> Any:
        """Return an NCHW tensor; what lies in memory as NHWC is torch's channels_last."""
        if array is None:
            return None
        if array.dtype.name == "bfloat16":
            tensor = self.torch.from_numpy(array.view(np.int16)).view(self.torch.bfloat16)
        else:
            tensor = self.torch.from_numpy(array)
        tensor = tensor.to(self.device)
        return tensor.permute(0, 3, 1, 2) if task.layout == "NHWC" else tensor

    def arrays(self, task: Task, results: list[Any]) -> list[Any]:
        half = self.torch.bfloat16  # NumPy has none
        results = [result.float() if result.dtype == half else result for result in results]
        arrays = [result.cpu().numpy() for result in results]
        return [a.transpose(0, 2, 3, 1) for a in arrays] if task.layout == "NHWC" else arrays


class Torchvision(Torch):
    """torchvision's operators, called below autograd; detectron2 calls them too."""

    modules = ("torch", "torchvision")
    layouts = ("NCHW", "NHWC")
    dtypes = (*Library.dtypes, "bfloat16")
    remarks: ClassVar[dict[str, str]] = {"float16": "it computes positions in float16"}

    def __init__(self, threads: int, device: str = "cpu") -> None:
        super().__init__(threads, device)
        import torchvision  # noqa: F401 - registers the operators

    def level(self, task: Task, level: Level) -> Callable[[], Any]:
        ops = self.torch.ops.torchvision
        x, grad = self._tensor(task, level.features), self._tensor(task, level.grad)
        rois = self.torch.from_numpy(level.rois).to(x)
        scale, size = level.scale, task.output_size
        if task.operation == "roi_pool":
            if not task.backward:
                return lambda: ops.roi_pool(x, rois, scale, *size)[0]
            argmax = ops.roi_pool(x, rois, scale, *size)[1]
            return lambda: ops._roi_pool_backward(grad, rois, argmax, scale, *size, *x.shape)
        sampling = task.sampling_ratio, task.aligned
        if not task.backward:
            return lambda: ops.roi_align(x, rois, scale, *size, *sampling)
        return lambda: ops._roi_align_backward(grad, rois, scale, *size, *x.shape, *sampling)


class Mmcv(Torch):
    """mmcv's own operators, where it was built with them."""

    modules = ("torch", "mmcv")

    def __init__(self, threads: int, device: str = "cpu") -> None:
        super().__init__(threads, device)
        import mmcv.ops

        self.ops = mmcv.ops

    def level(self, task: Task, level: Level) -> Callable[[], Any]:
        x, grad = self._tensor(task, level.features), self._tensor(task, level.grad)
        options = self.torch.from_numpy(level.rois).to(x), task.output_size, level.scale

        def forward() -> Any:
            if task.operation == "roi_pool":
                return self.ops.roi_pool(x, *options)
            return self.ops.roi_align(x, *options, task.sampling_ratio, "avg", task.aligned)

        if not task.backward:
            return forward
        with self.torch.enable_grad():
            x.requires_grad_()
            pooled = forward()
        return lambda: self.torch.autograd.grad([pooled], [x], [grad], retain_graph=True)[0]


_HALF_PIXEL = {True: "half_pixel", False: "output_half_pixel"}


class OnnxRuntime(Library):
    """ONNX Runtime: a model of one node, run with NumPy arrays."""

    modules = ("onnxruntime",)
    operations = (*Library.operations, "crop_and_resize")
    has_gradients = False

    def __init__(self, threads: int, device: str = "cpu") -> None:
        super().__init__(threads, device)
        import onnx
        import onnxruntime

        self.onnx, self.runtime = onnx, onnxruntime

    def level(self, task: Task, level: Level) -> Callable[[], Any]:
        size, scale = list(task.output_size), level.scale
        feeds = {"x": level.features, "rois": level.rois.astype(level.features.dtype)}
        if task.operation == "roi_pool":
            attributes = {"pooled_shape": size, "spatial_scale": scale}
            return self._session("MaxRoiPool", feeds, attributes)
        crop = task.operation == "crop_and_resize"
        feeds["images"] = feeds["rois"][:, 0].astype(np.int32 if crop else np.int64)
        feeds["rois"] = np.ascontiguousarray(feeds["rois"][:, 1:])
        if crop:
            feeds["size"] = np.array(size, np.int32)
            return self._session("CropAndResize", feeds, {}, "com.microsoft")
        attributes = {
            "output_height": size[0],
            "output_width": size[1],
            "sampling_ratio": task.sampling_ratio,
            "spatial_scale": scale,
            "coordinate_transformation_mode": _HALF_PIXEL[task.aligned],
        }
        return self._session("RoiAlign", feeds, attributes)

    def _session(
        self, node: str, feeds: dict[str, Any], attributes: dict[str, Any], domain: str = ""
    ) -> Callable[[], Any]:
        helper = self.onnx.helper

        def value(name: str, dtype: Any, ndim: int) -> Any:
            kind = helper.np_dtype_to_tensor_dtype(dtype)
            return helper.make_tensor_value_info(name, kind, [None] * ndim)

        inputs = [value(name, array.dtype, array.ndim) for name, array in feeds.items()]
        output = value("pooled", feeds["x"].dtype, 4)
        nodes = [helper.make_node(node, list(feeds), ["pooled"], domain=domain, **attributes)]
        graph = helper.make_graph(nodes, node, inputs, [output])
        opsets = [helper.make_opsetid("", 16), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        options = self.runtime.SessionOptions()
        options.intra_op_num_threads = self.threads
        options.inter_op_num_threads = 1
        session = self.runtime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        return lambda: session.run(None, feeds)[0]


# Said to OpenVINO, which may otherwise compute in bfloat16 for speed.
_PRECISION = {"float16": "f16", "float32": "f32"}


class OpenVino(Library):
    """OpenVINO: a compiled model of one operation, its arrays shared both ways, none copied."""

    modules = ("openvino",)
    dtypes = tuple(_PRECISION)
    has_gradients = False

    def __init__(self, threads: int, device: str = "cpu") -> None:
        super().__init__(threads, device)
        import openvino

        self.openvino = openvino

    def level(self, task: Task, level: Level) -> Callable[[], Any]:
        ops = self.openvino.opset9
        dtype = level.features.dtype
        rois = level.rois.astype(dtype)
        x = ops.parameter(level.features.shape, dtype)
        if task.operation == "roi_pool":
            feeds = [level.features, rois]
            boxes = ops.parameter(rois.shape, dtype)
            node = ops.roi_pooling(x, boxes, list(task.output_size), level.scale, "max")
            parameters = [x, boxes]
        else:
            feeds = [level.features, np.ascontiguousarray(rois[:, 1:]), rois[:, 0].astype(np.int32)]
            boxes = ops.parameter(feeds[1].shape, dtype)
            images = ops.parameter(feeds[2].shape, np.int32)
            sampling = task.sampling_ratio, level.scale, "avg"
            convention = "half_pixel_for_nn" if task.aligned else "asymmetric"
            node = ops.roi_align(x, boxes, images, *task.output_size, *sampling, convention)
            parameters = [x, boxes, images]
        model = self.openvino.Model([node], parameters, "one")
        settings = {
            "INFERENCE_NUM_THREADS": self.threads,
            "INFERENCE_PRECISION_HINT": _PRECISION[dtype.name],
        }
        request = self.openvino.Core().compile_model(model, "CPU", settings).create_infer_request()
        return lambda: request.infer(feeds, share_inputs=True, share_outputs=True)[0]


class TensorFlow(Library):
    """TensorFlow's raw operators, run eagerly."""

    modules = ("tensorflow",)
    operations = ("crop_and_resize",)
    layouts = ("NHWC",)
    remarks: ClassVar[dict[str, str]] = {"float64": "it takes boxes in float32"}

    def __init__(self, threads: int, device: str = "cpu") -> None:
        super().__init__(threads, device)
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        import tensorflow

        tensorflow.config.set_visible_devices([], "GPU")
        tensorflow.config.threading.set_intra_op_parallelism_threads(threads)
        tensorflow.config.threading.set_inter_op_parallelism_threads(1)
        self.tensorflow = tensorflow

    def level(self, task: Task, level: Level) -> Callable[[], Any]:
        raw, constant = self.tensorflow.raw_ops, self.tensorflow.constant
        boxes = constant(level.rois[:, 1:].astype(np.float32))
        images = constant(level.rois[:, 0].astype(np.int32))
        if not task.backward:
            x, size = constant(level.features), constant(np.array(task.output_size, np.int32))
            return lambda: raw.CropAndResize(image=x, boxes=boxes, box_ind=images, crop_size=size)
        grad = constant(level.grad.astype(np.float32))
        shape = constant(np.array(level.features.shape, np.int32))
        kind = self.tensorflow.as_dtype(level.features.dtype)
        return lambda: raw.CropAndResizeGradImage(
            grads=grad, boxes=boxes, box_ind=images, image_size=shape, T=kind
        )

    def arrays(self, task: Task, results: list[Any]) -> list[Any]:
        return [result.numpy() for result in results]


LIBRARIES: dict[str, type[Library]] = {
    "torchvision": Torchvision,
    "mmcv": Mmcv,
    "onnxruntime": OnnxRuntime,
    "openvino": OpenVino,
    "tensorflow": TensorFlow,
}


def _release(version: str) -> str:
    """Leave out what follows the numbers, such as a build's name."""
    return version.split("-")[0]


def opened(library: type[Library], threads: int, device: str = "cpu") -> Library:
    """Import a library; whatever goes wrong there is a reason for its absence."""
    try:
        return library(threads, device)
    except Absent:
        raise
    except ImportError as error:
        raise Absent(f"is not installed ({_first_line(error)})") from error
    except Exception as error:
        raise Absent(f"could not be loaded: {_first_line(error)}") from error


def prepared(library: Library, task: Task) -> Callable[[], list[Any]]:
    """Make a library ready and let it run once, so that what it refuses is known."""
    library.check(task)
    try:
        call = library.prepare(task)
        call()
    except Absent:
        raise
    except Exception as error:
        raise Absent(f"refuses this: {_first_line(error)}") from error
    return call


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:120] if lines else 'no message'}"
