"""Crops of pictures: boxes in pixels, cut out and resized."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from roipool import _arguments as check
from roipool._arrays import LIBRARY_OF, NUMPY, Array
from roipool._box_forms import FORMS
from roipool._dtypes import FLOATS, INTEGERS, dtype_name
from roipool._errors import shown
from roipool._front_ends import for_every_array
from roipool._gradients import composed
from roipool._layout import Layout
from roipool._settings import get_num_threads
from roipool._types import Numbers
from roipool.ops.crop_and_resize import crop_and_resize

BoxFormat: TypeAlias = Literal["xyxy", "yxyx", "xywh", "cxcywh", "yolo"]
PictureLayout: TypeAlias = Literal["HWC", "CHW"]
Size: TypeAlias = tuple[int, int]  # rows and columns

BOX_FORMATS: tuple[BoxFormat, ...] = ("xyxy", "yxyx", "xywh", "cxcywh", "yolo")
LAYOUTS: tuple[PictureLayout, ...] = ("HWC", "CHW")
PIXELS = (*FLOATS, *INTEGERS, "bool")
FARTHEST = 2**31  # pixels from the picture's corner
CROPS_OF_TASK = 64


class Window(NamedTuple):
    """Whole pixels of a picture, as slices have them; some may lie outside of it."""

    top: int
    bottom: int
    left: int
    right: int

    @property
    def size(self) -> Size:
        """Rows and columns."""
        return self.bottom - self.top, self.right - self.left


class _Crop(NamedTuple):
    """One crop, before it is made."""

    picture: Array
    window: Window
    size: Size


@for_every_array
@composed
def crop(
    picture: Any,
    boxes: Numbers | Sequence[Numbers],
    size: int | Sequence[int] | Numbers | None = None,
    *,
    box_format: BoxFormat = "xyxy",
    layout: PictureLayout = "HWC",
    antialias: bool = True,
    fill: float = 0,
    progress: bool = False,
) -> Any:
    """Cut boxes out of pictures and resize them, as Pillow and torchvision do.

    Parameters
    ----------
    picture : array, or sequence of arrays
        A picture of shape (H, W) or (H, W, C), or (C, H, W) with ``layout="CHW"``; or several,
        of any sizes: a list, or an array with one more axis than ``(H, W, C)``. Arrays of NumPy,
        CuPy, PyTorch, JAX or Dask, pictures of Pillow, or arrays in files (zarr, h5py, xarray), of
        which only the boxes are read; uint8, int8, uint16, int16, bool, float16, bfloat16, float32
        or float64.
    boxes : array_like, or sequence of them
        Shape (K, 4), in pixels: 0 is the left edge of the first pixel, W the right edge of the
        last. Boxes are rounded to whole pixels, half to even; one narrower than a pixel becomes the
        pixel around its centre. For several pictures, a list with the boxes of each, or an array of
        shape (N, K, 4).
    size : int, pair of int, array_like of int, or None
        Rows and columns of each crop; one int sets both. None keeps the size of each box, and an
        array of shape (K, 2) has a size for each.
    box_format : {"xyxy", "yxyx", "xywh", "cxcywh", "yolo"}
        The numbers of a box: "xyxy" are x1, y1, x2, y2; "xywh" the first corner, width and height,
        as in COCO; "cxcywh" the centre, width and height; "yolo" the same as fractions of the
        picture's width and height.
    layout : {"HWC", "CHW"}
        Order of the axes of pictures with three, and of their crops.
    antialias : bool
        Whether crops that make smaller average all pixels, with Pillow's weights. False reads only
        the nearest four, as OpenCV's linear interpolation does.
    fill : float
        Value of pixels outside of the picture.
    progress : bool
        Whether to show a progress bar, which needs ``pip install rich``.

    Returns
    -------
    array or list of arrays
        The crops of all pictures in the order of the boxes, in the picture's dtype: an array of
        shape (K, rows, columns, C), (K, C, rows, columns) or (K, rows, columns); without one size
        for all, a list of them. Integers are rounded half to even.

    See Also
    --------
    crop_and_resize : Boxes as fractions, at any position between pixels.
    roi_align : Averages of feature maps over boxes.

    Notes
    -----
    Crops of bytes are those of Pillow's ``picture.crop(box).resize(size, BILINEAR)`` and of
    torchvision's ``resized_crop(..., antialias=True)`` to within a level: those round after each
    axis. Only pixels of the box are read. Gradients of PyTorch and JAX are with respect to the
    picture.

    Examples
    --------
    >>> import numpy as np, roipool
    >>> picture = np.arange(16, dtype=np.uint8).reshape(4, 4)
    >>> roipool.crop(picture, [[0, 0, 4, 2], [2, 0, 4, 4]], size=2)
    array([[[ 1,  2],
            [ 5,  6]],
    <BLANKLINE>
           [[ 5,  6],
            [11, 12]]], dtype=uint8)

    Each crop in the size of its box, a part of which is outside.

    >>> roipool.crop(picture, [[1, 1, 3, 3], [3, -1, 5, 1]])
    [array([[ 5,  6],
           [ 9, 10]], dtype=uint8), array([[0, 0],
           [3, 0]], dtype=uint8)]
    """
    check.choice("layout", layout, LAYOUTS)
    check.choice("box_format", box_format, BOX_FORMATS)
    pictures = _pictures(picture, layout)
    tables = _tables(boxes, pictures)
    windows = [
        _windows(name, tables[name], _height_width(each, layout), box_format)
        for name, each in zip(tables, pictures.values(), strict=True)
    ]
    flat = [window for own in windows for window in own]
    sizes, common = _sizes(size, flat)
    maker = _Maker(layout, check.flag("antialias", antialias), _filling(fill, pictures))
    places = [each for each, own in zip(pictures.values(), windows, strict=True) for _ in own]
    crops = list(map(_Crop, places, flat, sizes))
    with _progress(len(crops), check.flag("progress", progress)) as advance:
        if common is None:
            return [advance(maker.crop(each)) for each in crops]
        return maker.array(next(iter(pictures.values())), crops, common, advance)


# ---- Arguments


def _pictures(picture: Any, layout: PictureLayout) -> dict[str, Array]:
    """Return the pictures by their names, checked."""
    is_one = not isinstance(picture, (list, tuple))
    if is_one and len(getattr(picture, "shape", ())) == 4:
        named = {f"picture[{number}]": each for number, each in enumerate(picture)}
    else:
        named = {"picture": picture} if is_one else check.numbered("picture", picture)
    found = {name: _readable(name, each) for name, each in named.items()}
    for name, each in found.items():
        if len(each.shape) not in (2, 3):
            forms = "(H, W, C)" if layout == "HWC" else "(C, H, W)"
            raise ValueError(f"{name} must have shape (H, W) or {forms}, got {tuple(each.shape)}")
        kind = _kind(each)
        if kind not in PIXELS:
            raise TypeError(f"{name} must be {', '.join(PIXELS)}, got {kind}")
        if 0 in each.shape:
            raise ValueError(f"{name} must have pixels, got shape {tuple(each.shape)}")
    return found


def _readable(name: str, picture: Any) -> Array:
    """Return what can be sliced: an array of a library, of a file, or a picture's pixels."""
    if all(hasattr(picture, each) for each in ("shape", "dtype", "__getitem__")):
        return picture
    if hasattr(picture, "__array_interface__"):  # of Pillow
        return np.asarray(picture)
    raise TypeError(f"{name} must be an array or a picture, got {type(picture).__name__}")


def _kind(picture: Array) -> str:
    library = LIBRARY_OF[type(picture)] or NUMPY
    return dtype_name(np.dtype(library.dtype(picture)))


def _height_width(picture: Array, layout: PictureLayout) -> tuple[int, int]:
    rows, columns = picture.shape[-2:] if layout == "CHW" else picture.shape[:2]
    return int(rows), int(columns)


def _tables(boxes: Any, pictures: dict[str, Array]) -> dict[str, Any]:
    """Return the boxes of each picture by their names."""
    if list(pictures) == ["picture"]:
        return {"boxes": boxes}
    is_array = len(getattr(boxes, "shape", ())) > 0
    tables = check.numbered("boxes", list(boxes) if is_array else boxes)
    if len(tables) != len(pictures):
        raise ValueError(
            f"boxes must be a list with the boxes of each of {len(pictures)} pictures, got "
            f"{len(tables)}"
        )
    return tables


def _windows(name: str, boxes: Any, size: tuple[int, int], box_format: BoxFormat) -> list[Window]:
    """Return the whole pixels of each box."""
    table = check.number_array(name, boxes)
    library = LIBRARY_OF[type(table)] or NUMPY
    numbers = np.asarray(library.host_copy(table), np.float64)
    if numbers.size == 0 and numbers.ndim < 3:
        return []
    form = FORMS[box_format]
    if numbers.ndim != 2 or numbers.shape[1] != 4:
        columns = ", ".join(form.columns)
        raise ValueError(f"{name} must have shape (K, 4), rows {columns}, got {numbers.shape}")
    if form.of_size:
        numbers = numbers * (size[1], size[0], size[1], size[0])
    ends = np.stack(form.corners(*numbers.T)).reshape(2, 2, -1)  # first and last, x and y
    wrong = ~(np.abs(ends) < FARTHEST).all(axis=(0, 1))
    _check_boxes(name, boxes, wrong, f"be finite and within {FARTHEST} pixels")
    _check_boxes(name, boxes, (ends[1] < ends[0]).any(axis=0), "end after their beginning")
    first, last = np.rint(ends)
    is_narrow = first == last
    first = np.where(is_narrow, np.floor(ends.mean(axis=0)), first)
    last = np.where(is_narrow, first + 1, last)
    (left, top), (right, bottom) = first.astype(int).tolist(), last.astype(int).tolist()
    return list(map(Window, top, bottom, left, right))


def _check_boxes(name: str, boxes: Any, is_wrong: Any, what: str) -> None:
    if is_wrong.any():
        row = int(np.flatnonzero(is_wrong)[0])
        raise ValueError(f"{name} must {what}, got {shown(boxes[row])} in row {row}")


def _filling(fill: Any, pictures: dict[str, Array]) -> float:
    """Return the value of pixels outside, if all pictures can hold it."""
    number = check.real_number("fill", fill)
    for name, each in pictures.items():
        kind = _kind(each)
        if kind in FLOATS:
            continue
        least, most = (0, 1) if kind == "bool" else (np.iinfo(kind).min, np.iinfo(kind).max)
        if not (number.is_integer() and least <= number <= most):
            raise ValueError(
                f"fill must be a whole number that {name} can hold, {kind}, got {fill}"
            )
    return number


def _sizes(size: Any, windows: list[Window]) -> tuple[list[Size], Size | None]:
    """Return the size of each crop, and the one of all, if there is one."""
    if size is None:
        return [window.size for window in windows], None
    if np.ndim(size) < 2:
        common = check.size_pair("size", size)
        return [common] * len(windows), common
    rows = np.asarray(size)
    if rows.shape != (len(windows), 2):
        raise ValueError(f"size must have a row for each of {len(windows)} boxes, got {rows.shape}")
    return [check.size_pair(f"size[{k}]", row.tolist()) for k, row in enumerate(rows)], None


# ---- Crops


class _Maker(NamedTuple):
    """The options of crops."""

    layout: PictureLayout
    antialias: bool
    fill: float

    def array(
        self, first: Array, crops: Sequence[_Crop], size: Size, advance: Callable[[Array], Array]
    ) -> Array:
        """Return crops of one size as an array."""
        library = LIBRARY_OF[type(first)] or NUMPY
        if library is not NUMPY:
            if crops:
                return library.xp().stack([advance(self.crop(each)) for each in crops])
            return library.xp().zeros((0, *self._shape(first, size)), library.dtype(first))
        kinds = {each.picture.dtype for each in crops} or {first.dtype}
        shapes = {self._shape(each.picture, size) for each in crops} or {self._shape(first, size)}
        if len(kinds) > 1 or len(shapes) > 1:
            raise ValueError("pictures must have one dtype and as many channels")
        result = NUMPY.empty((len(crops), *shapes.pop()), np.dtype(kinds.pop()))
        self._fill_array(result, crops, advance)
        return result

    def _fill_array(
        self, result: Array, crops: Sequence[_Crop], advance: Callable[[Array], Array]
    ) -> None:
        """Make crops by several threads: each is too little work for several."""

        def make(begin: int) -> None:
            for place, each in enumerate(crops[begin : begin + CROPS_OF_TASK], begin):
                result[place] = advance(self.crop(each))

        with ThreadPoolExecutor(get_num_threads()) as pool:
            tasks = [pool.submit(make, begin) for begin in range(0, len(crops), CROPS_OF_TASK)]
            try:
                for task in tasks:
                    task.result()
            except BaseException:  # a signal's, too: what has not begun does not begin
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _shape(self, picture: Array, size: Size) -> tuple[int, ...]:
        if len(picture.shape) == 2:
            return size
        if self.layout == "CHW":
            return picture.shape[0], *size
        return *size, picture.shape[2]

    def crop(self, given: _Crop) -> Array:
        """Return one crop, in the picture's dtype."""
        piece, size = self._cut(given.picture, given.window), given.size
        if given.window.size == size:  # Pillow's resize copies it, too
            return piece
        library = LIBRARY_OF[type(piece)] or NUMPY
        kind = _kind(piece)
        axes: Any = {2: (None, None), 3: (None,)}[len(piece.shape)]
        is_last = len(piece.shape) == 3 and self.layout == "HWC"
        order: Layout = "NHWC" if is_last else "NCHW"
        with _device(piece):
            # CuPy has no `owned` of its own: engines take any array of its.
            own = library.owned if library.engine is None else library.xp().asarray
            crops = crop_and_resize(
                piece[axes],
                own(np.array([_fractions(given.window.size, size)])),
                own(np.zeros(1, np.int64)),
                size,
                antialias=self.antialias,
                border="edge",
                layout=order,
                dtype=kind if kind in INTEGERS else None,
            )
        values = crops[0, 0] if len(piece.shape) == 2 else crops[0]
        return values >= 0.5 if kind == "bool" else values

    def _cut(self, picture: Array, window: Window) -> Array:
        """Return the pixels of a window, with the filling where it is outside of the picture."""
        rows, columns = _height_width(picture, self.layout)
        at = 1 if self.layout == "CHW" and len(picture.shape) == 3 else 0
        inside = [slice(None)] * at
        frame = []
        ends = ((window.top, window.bottom, rows), (window.left, window.right, columns))
        for first, last, length in ends:
            begin, end = (min(max(each, 0), length) for each in (first, last))
            inside.append(slice(begin, end))
            frame.append((max(min(last, 0) - first, 0), max(last - max(first, length), 0)))
        piece = picture[tuple(inside)]
        if LIBRARY_OF[type(piece)] is None:
            piece = np.asarray(piece)
        for axis, (before, after) in enumerate(frame, at):
            piece = self._framed(piece, before, after, axis)
        return piece

    def _framed(self, piece: Array, before: int, after: int, axis: int) -> Array:
        """Return pixels between others along an axis."""
        if before == 0 and after == 0:
            return piece
        library = LIBRARY_OF[type(piece)] or NUMPY
        shape, kind = list(piece.shape), np.dtype(library.dtype(piece))

        def filled(length: int) -> Array:
            shape[axis] = length
            zeros = library.xp().zeros(tuple(shape), kind)
            return library.astype(zeros + self.fill, kind) if self.fill else zeros

        with _device(piece):
            return library.xp().concatenate([filled(before), piece, filled(after)], axis=axis)


def _device(array: Array) -> AbstractContextManager[Any]:
    """Return a context in which new arrays lie on an array's device."""
    context: AbstractContextManager[Any] | None = (LIBRARY_OF[type(array)] or NUMPY).device(array)
    return nullcontext() if context is None else context


def _fractions(window: Size, size: Size) -> tuple[float, float, float, float]:
    """Return y1, x1, y2, x2 of the first and last pixels of a crop, for `crop_and_resize`."""
    (y1, y2), (x1, x2) = map(_ends, window, size)
    return y1, x1, y2, x2


def _ends(length: int, pixels: int) -> tuple[float, float]:
    """Return the centres of the first and last of so many pixels of a side, as fractions.

    A single pixel is midway between the ends, and reads as far as they are.
    """
    first = length / (2 * pixels) - 0.5 if pixels > 1 else -0.5
    steps = max(length - 1, 1)
    return first / steps, (length - 1 - first) / steps


# ---- Progress


@contextmanager
def _progress(count: int, is_shown: bool) -> Iterator[Callable[[Array], Array]]:
    """Return a function that counts a crop, and returns it."""
    if not is_shown:
        yield lambda crop: crop
        return
    try:
        from rich.progress import Progress
    except ImportError:
        raise ImportError("progress=True needs rich: pip install rich") from None
    with Progress(transient=True) as bar:
        task = bar.add_task("crops", total=count)

        def advance(crop: Array) -> Array:
            bar.advance(task)
            return crop

        yield advance
