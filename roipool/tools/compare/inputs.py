"""Reads pictures, feature maps and volumes, and chooses boxes if the user gives none.

The memory of a reader is bounded whatever a file declares: the limits below are checked before
decoding.
"""

from __future__ import annotations

import errno
import io
import math
import stat
import warnings
import zipfile
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from roipool import _box_forms as box_forms
from roipool.tools.compare import annotation_files, box_files, built_in_volume

if TYPE_CHECKING:
    from PIL import Image

__all__ = [
    "ARRAYS",
    "BoxForm",
    "Boxes",
    "FeatureMap",
    "read_array",
    "read_boxes",
    "read_features",
    "read_text",
]

FloatArray = NDArray[np.float32]

_PICTURE = "coffee.jpg"
_BOXES = "boxes.csv"
_GRID = 3
ARRAYS = (".npy", ".npz", ".safetensors")

# The formats of cameras and screenshots. Pillow has many more, but few are tested as well, and EPS
# runs another program.
_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
_MAX_PIXELS = 50_000_000
_MAX_ELEMENTS = 2**27  # of an array
_MAX_TEXT_BYTES = 2**26
_SAFETENSORS = ("F64", "F32", "F16", "I64", "I32", "I16", "I8", "U64", "U32", "U16", "U8", "BOOL")


@dataclass(frozen=True)
class FeatureMap:
    """The map, or the volume, to pool from."""

    name: str  # name in reports
    values: FloatArray  # (N, C, H, W) or (N, C, D, H, W)
    # Width and height, and depth of a volume, in image pixels: the unit of box coordinates.
    size: tuple[float, ...]
    picture: FloatArray | None = None  # the picture at its full size, if the map was made from one
    built_in: bool = False  # whether the picture or the volume is the package's own
    made: bool = False  # whether the map consists of random numbers
    is_first: bool = False  # of several pictures in its file: an animation, or pages

    @property
    def is_volume(self) -> bool:
        """Whether it is a volume."""
        return self.values.ndim == 5

    @property
    def kind(self) -> str:
        """What it is, in reports."""
        return "volume" if self.is_volume else "map"


@dataclass(frozen=True)
class BoxForm:
    """The meaning of a file's numbers: a key of `box_forms.FORMS`, and their units.

    Without a name they are x1, y1, x2, y2, or x1, y1, z1, x2, y2, z2 of a volume.
    """

    name: str | None = None
    normalized: bool = False
    degrees: bool = False


@dataclass(frozen=True)
class Boxes:
    """The boxes to pool: ``rois`` of a `Problem`, their name in reports, and who chose them."""

    name: str
    rois: FloatArray
    is_chosen: bool = False  # by this program, if no file is given


def read_features(
    path: str | None,
    spatial_scale: float = 1.0,
    make: tuple[int, ...] | None = None,
    volume: bool = False,
) -> FeatureMap:
    """Read a picture, a feature map or a volume, or make a random one.

    Parameters
    ----------
    path : str or None
        An ``.npy``, ``.npz`` or ``.safetensors`` file holds a feature map of shape ``(H, W)``,
        ``(C, H, W)`` or ``(N, C, H, W)``, or a volume of shape ``(N, C, D, H, W)``, used unchanged.
        Any other file is a picture: it is turned upright, converted to RGB in [0, 1] with
        transparent parts white, and resized by `spatial_scale`. None means the package's own
        picture or volume.
    spatial_scale : float
        Size of the map relative to the picture.
    make : tuple of int, optional
        Channels, rows and columns of a map of random numbers with a fixed seed; channels, planes,
        rows and columns of a volume.
    volume : bool
        Whether a volume is asked for: an array then may have shape ``(D, H, W)`` or
        ``(C, D, H, W)``.

    Raises
    ------
    ValueError, OSError
        If the file cannot be read, or its content does not match its name.
    """
    if make is not None:
        if volume and len(make) == 3:
            shape = "x".join(map(str, make))
            raise ValueError(f"--make {shape}: a volume is CxDxHxW, such as 4x16x32x32")
        return _made(make, spatial_scale)
    if path is None and volume:
        values = built_in_volume.values()
        return FeatureMap("built-in volume", values, _size(values, spatial_scale), built_in=True)
    if path is None:
        content = io.BytesIO(_built_in(_PICTURE))
        return _from_picture(f"built-in picture {_PICTURE}", content, spatial_scale, True)
    if Path(path).suffix.lower() in ARRAYS:
        return _from_array(path, spatial_scale, volume)
    if volume:
        raise ValueError(f"{path}: a volume is an array: {', '.join(ARRAYS)}")
    with _open(path) as stream:
        return _from_picture(path, stream, spatial_scale, False)


def read_boxes(
    path: str | None,
    features: FeatureMap,
    form: BoxForm = BoxForm(),
    spatial_scale: float = 1.0,
) -> Boxes:
    """Read a file of boxes, or choose boxes that suit the map.

    Parameters
    ----------
    path : str or None
        CSV, JSON, COCO JSON or ``.npy``. None means the built-in boxes for the built-in picture or
        volume, and the whole and its 3 x 3 parts for any other picture or map.
    spatial_scale : float
        Size of the map relative to the picture.

    Returns
    -------
    Boxes
        Rows ``[batch_index, x1, y1, x2, y2]`` in float32, or rows of rotated boxes or of boxes of
        volumes.

    Raises
    ------
    ValueError, OSError
        If the file cannot be read, or does not contain boxes for this map.
    """
    usual = "xyzxyz" if features.is_volume else "xyxy"
    if path is not None:
        numbers = _form_of(form.name or usual, features)
        table = _read_table(path, features, numbers)
        size = features.size if form.normalized or numbers.of_size else None
        images = len(features.values)
        if numbers.of_last_cell:
            if form.normalized:
                raise ValueError(f"--normalized: boxes of --box-format {form.name} are fractions")
            fractions = box_files.to_rois(table, images, numbers)
            return Boxes(path, _in_pixels(fractions, features, spatial_scale))
        rois = box_files.to_rois(table, images, numbers, size=size, degrees=form.degrees)
        return Boxes(path, rois)
    if form not in (BoxForm(), BoxForm(usual)):
        raise ValueError("--box-format, --normalized and --degrees describe a file: give --boxes")
    with np.errstate(over="ignore", invalid="ignore"):  # a tiny scale makes an infinite picture
        return replace(_chosen_boxes(features), is_chosen=True)


def _in_pixels(fractions: FloatArray, features: FeatureMap, spatial_scale: float) -> FloatArray:
    """Return the boxes in pixels from which systems get fractions of the last cell.

    Systems compute these fractions in float32. They are those of the file, or a hair closer to 0
    where no pixel gives them: beyond 1 they would be outside the map.
    """
    height, width = (np.float32(max(n - 1, 1)) for n in features.values.shape[2:])
    last, scale = np.array([width, height, width, height]), np.float32(spatial_scale)
    wanted = fractions[:, 1:]
    with np.errstate(over="ignore", invalid="ignore"):
        nearest = (wanted * (last / np.float64(spatial_scale))).astype(np.float32)
        inner, outer = (np.nextafter(nearest, nearest * factor) for factor in (0, 2))
        pixels = inner
        for other in (nearest, outer):
            pixels = np.where(np.abs(other * scale / last) <= np.abs(wanted), other, pixels)
    return np.hstack([fractions[:, :1], pixels])


def _chosen_boxes(features: FeatureMap) -> Boxes:
    """Choose boxes that suit the map."""
    images = len(features.values)
    if features.built_in and features.is_volume:
        corners = built_in_volume.boxes_in_cells() * _cell(features)
        return Boxes("built-in boxes", _in_first_image(corners))
    if features.built_in:
        table = box_files.from_csv(_built_in(_BOXES).decode(), _BOXES)
        return Boxes("built-in boxes", box_files.to_rois(table, images))
    if images == 0:
        raise ValueError(f"{features.name}: contains no image")
    if features.made:
        return Boxes("made boxes: ordinary, small, over the edge, reversed", _made_boxes(features))
    parts = " x ".join([str(_GRID)] * len(features.size))
    name = f"no --boxes given: the whole {_kind(features)} and its {parts} parts"
    return Boxes(name, _whole_and_parts(features.size))


def _form_of(name: str, features: FeatureMap) -> box_forms.BoxNumbers:
    """Return the meaning of a box's numbers, which must be that of boxes of such features."""
    form = box_forms.FORMS[name]
    if form.is_volume and not features.is_volume:
        raise ValueError(
            f"--box-format {name}: {features.name} is a map, not a volume; {box_forms.NEEDS_VOLUME}"
        )
    if features.is_volume and not form.is_volume:
        allowed = ", ".join(box_forms.VOLUME_FORMS)
        raise ValueError(f"--box-format {name}: {features.name} is a volume: give {allowed}")
    return form


def _read_table(path: str, features: FeatureMap, form: box_forms.BoxNumbers) -> box_files.Table:
    suffix = Path(path).suffix.lower()
    if suffix in ARRAYS:
        return box_files.from_array(read_array(path, "boxes"), path, form)
    image = None if features.built_in or features.made else features.name
    if suffix in (".json", ".geojson"):
        return box_files.from_json(read_text(path), path, image, form)
    if suffix == ".xml":
        found = annotation_files.of_voc(read_text(path), path)
        return box_files.from_corners(found, path, "object", form)
    return box_files.from_csv(read_text(path), path, form, image)


def read_array(path: str, key: str) -> NDArray[Any]:
    """Read real numbers from ``.npy``, or from an archive's array `key` or only array."""
    if Path(path).suffix.lower() == ".safetensors":
        return _read_safetensors(path, key)
    try:
        with _open(path) as stream:
            if not zipfile.is_zipfile(stream):
                stream.seek(0)
                return _read_npy(stream)
            with zipfile.ZipFile(stream) as archive, _open_member(archive, key) as member:
                return _read_npy(member)
    except (OSError, MemoryError):
        raise
    except Exception as error:  # zip, header and pickle errors have many classes
        raise ValueError(f"{path}: not an array that can be read ({error})") from error


def _open_member(archive: zipfile.ZipFile, key: str) -> IO[bytes]:
    """Open an array in an archive written by NumPy."""
    names = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
    name = _array_name(key, names)
    info = archive.getinfo(f"{name}.npy")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{name} uses a compression that NumPy does not read")
    return archive.open(info)


def _read_npy(stream: IO[bytes]) -> NDArray[Any]:
    """Read an array whose header declares real numbers and an allowed size."""
    npy = np.lib.format
    readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    version = npy.read_magic(stream)
    if version not in readers:
        raise ValueError(f"version {version} of the format is not for arrays of numbers")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shape, _, dtype = readers[version](stream)
    if dtype.kind not in "biuf":
        raise ValueError(f"needs real numbers, but the array is of type {dtype}")
    _check_elements(shape)
    stream.seek(0)
    array: NDArray[Any] = npy.read_array(stream, allow_pickle=False)
    return array


def _read_safetensors(path: str, key: str) -> NDArray[Any]:
    """Read a tensor whose header declares real numbers and an allowed size."""
    import safetensors

    try:
        _open(path).close()
        with safetensors.safe_open(path, framework="numpy") as archive:
            name = _array_name(key, list(archive.keys()))
            header = archive.get_slice(name)
            shape = header.get_shape()
            if header.get_dtype() not in _SAFETENSORS:
                raise ValueError(f"{name} is of type {header.get_dtype()}, which NumPy lacks")
            _check_elements(tuple(shape))
            array: NDArray[Any] = archive.get_tensor(name)
            return array
    except (OSError, MemoryError):
        raise
    except Exception as error:  # safetensors raises plain exceptions
        raise ValueError(f"{path}: not an array that can be read ({error})") from error


def _check_elements(shape: tuple[int, ...]) -> None:
    if math.prod(shape) > _MAX_ELEMENTS:
        raise ValueError(f"the array has shape {shape}: more than {_MAX_ELEMENTS:,} numbers")


def _array_name(key: str, names: list[str]) -> str:
    if key in names:
        return key
    if len(names) == 1:
        return names[0]
    listed = ", ".join(names) or "no array"
    raise ValueError(f"needs an array named {key!r} or only one array, but it contains {listed}")


def _kind(features: FeatureMap) -> str:
    return features.kind if features.picture is None else "picture"


def _built_in(name: str) -> bytes:
    return files("roipool.tools.compare").joinpath("data", name).read_bytes()


def _open(path: str) -> BinaryIO:
    """Open an input; a device, such as one without an end, is an error."""
    mode = Path(path).stat().st_mode
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        raise OSError(errno.EINVAL, "a device, not a file", path)
    return Path(path).open("rb")


def read_text(path: str) -> str:
    """Read a text file of limited size."""
    with _open(path) as stream:
        content = stream.read(_MAX_TEXT_BYTES + 1)
    if len(content) > _MAX_TEXT_BYTES:
        raise ValueError(
            f"{path}: larger than {_MAX_TEXT_BYTES // 2**20} MiB; give the boxes of one picture"
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not a text file in UTF-8") from error


def _whole_and_parts(size: tuple[float, ...]) -> FloatArray:
    edges = [np.linspace(0, length, _GRID + 1, dtype=np.float32) for length in size]
    parts = []
    for place in np.ndindex((_GRID,) * len(size)):  # the last axis of the map is x
        low = [edge[at] for edge, at in zip(edges, reversed(place), strict=True)]
        high = [edge[at + 1] for edge, at in zip(edges, reversed(place), strict=True)]
        parts.append([0, *low, *high])
    return np.array([[0, *[0] * len(size), *size], *parts], dtype=np.float32)


def _made(shape: tuple[int, ...], spatial_scale: float) -> FeatureMap:
    kind = "map" if len(shape) == 3 else "volume"
    if math.prod(shape) > _MAX_ELEMENTS:
        raise ValueError(f"--make: the {kind} would have more than {_MAX_ELEMENTS:,} numbers")
    values = np.random.default_rng(0).standard_normal((1, *shape), np.float32)
    return FeatureMap(f"made {kind}", values, _size(values, spatial_scale), made=True)


# x1, y1, z1, x2, y2, z2 of made boxes, as fractions; those of a map have no z.
_INSIDE = [
    [0.1, 0.2, 0.15, 0.6, 0.7, 0.8],
    [0.25, 0.25, 0.25, 0.75, 0.75, 0.75],
    [0, 0, 0, 1, 1, 1],
    [0.37, 0.11, 0.2, 0.93, 0.44, 0.9],
]
_BEYOND = [
    [-0.2, -0.1, 0.3, 0.3, 0.4, 1.1],
    [0.8, 0.7, 0.6, 1.3, 1.2, 1.2],
    [1.5, 1.5, 1.5, 2, 2, 2],
    [0.7, 0.6, 0.8, 0.2, 0.3, 0.1],
]
# The same, in cells.
_SMALL = [
    [2, 2, 2, 2, 2, 2],
    [1.2, 1.4, 1.3, 1.6, 1.7, 1.8],
    [2.5, 1.5, 0.5, 4.5, 3.5, 2.5],
    [1, 1, 1, 3, 3, 3],
]


def _made_boxes(features: FeatureMap) -> FloatArray:
    """Return boxes of the kinds on which systems differ, scaled to the map."""
    cells, pixel = _cells(features), _cell(features)
    columns = slice(None) if features.is_volume else [0, 1, 3, 4]
    fractions, small = np.array([*_INSIDE, *_BEYOND])[:, columns], np.array(_SMALL)[:, columns]
    return _in_first_image(np.concatenate([fractions * cells * pixel, small * pixel]))


def _cells(features: FeatureMap) -> NDArray[np.float64]:
    """Return the cells along each axis, for both corners of a box."""
    return np.array([*features.values.shape[:1:-1]] * 2, np.float64)


def _cell(features: FeatureMap) -> NDArray[np.float64]:
    """Return the size of a cell in pixels along each axis, for both corners of a box."""
    return np.array([*features.size, *features.size]) / _cells(features)


def _in_first_image(corners: NDArray[np.float64]) -> FloatArray:
    """Return boxes with the batch index 0."""
    return np.concatenate([np.zeros((len(corners), 1)), corners], axis=1).astype(np.float32)


def _size(values: FloatArray, spatial_scale: float) -> tuple[float, ...]:
    """Return width, height and, of a volume, depth in pixels."""
    return tuple(length / spatial_scale for length in values.shape[:1:-1])


def _from_array(path: str, spatial_scale: float, volume: bool) -> FeatureMap:
    array = read_array(path, "features")
    if volume and not 3 <= array.ndim <= 5:
        raise ValueError(
            f"{path}: --volume needs shape (D, H, W), (C, D, H, W) or (N, C, D, H, W), but it is "
            f"{array.shape}"
        )
    if not 2 <= array.ndim <= 5:
        raise ValueError(
            f"{path}: needs shape (H, W), (C, H, W) or (N, C, H, W), or of a volume "
            f"(N, C, D, H, W), but it is {array.shape}"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        values = np.ascontiguousarray(array, dtype=np.float32)
    dimensions = 5 if volume else max(values.ndim, 4)
    values = values.reshape((1,) * (dimensions - values.ndim) + values.shape)
    return FeatureMap(path, values, _size(values, spatial_scale))


def _from_picture(name: str, stream: Any, spatial_scale: float, built_in: bool) -> FeatureMap:
    picture, is_first = _decode(name, stream)
    height, width = picture.shape[:2]
    planes = np.ascontiguousarray(picture.transpose(2, 0, 1))
    if spatial_scale != 1:
        planes = _resize(name, planes, spatial_scale)
    maps = planes[np.newaxis]
    return FeatureMap(name, maps, (width, height), picture, built_in, is_first=is_first)


def _decode(name: str, stream: Any) -> tuple[FloatArray, bool]:
    """Return a file's first picture, (H, W, 3) in [0, 1], and whether it has more."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(stream, formats=_FORMATS) as image:
                if image.width * image.height > _MAX_PIXELS:
                    raise Image.DecompressionBombError
                return _to_rgb(ImageOps.exif_transpose(image)), getattr(image, "is_animated", False)
    except UnidentifiedImageError:
        formats = ", ".join(_FORMATS)
        raise ValueError(f"{name}: not a picture in one of the formats {formats}") from None
    except Image.DecompressionBombError as error:  # also Pillow's own, of a higher limit
        raise ValueError(
            f"{name}: has more than {_MAX_PIXELS:,} pixels: give a smaller picture, or a part of it"
        ) from error
    except MemoryError:
        raise
    except Exception as error:  # damaged pictures raise almost anything, even SyntaxError
        raise ValueError(f"{name}: damaged or unsupported picture ({error})") from error


def _to_rgb(image: Image.Image) -> FloatArray:
    """Convert a picture of any mode to (H, W, 3) in [0, 1]."""
    if image.mode.startswith(("I", "F")):
        grey = _deep_grey(np.asarray(image, dtype=np.float64))
        return np.repeat(grey[:, :, np.newaxis], 3, axis=2)
    if "A" in image.getbands() or "transparency" in image.info:
        from PIL import Image

        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    picture = np.array(image.convert("RGB"), dtype=np.float32)
    picture /= np.float32(255)
    return picture


def _deep_grey(values: NDArray[np.float64]) -> FloatArray:
    """Scale grey values of more than 8 bits to [0, 1]."""
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    if low >= 0 and high <= 1:
        return values.astype(np.float32)
    if low >= 0 and high <= 65535:
        return (values / 65535).astype(np.float32)
    # Deeper pictures have no conventional range: use the range of this picture.
    return ((values - low) / max(high - low, np.finfo(np.float64).tiny)).astype(np.float32)


def _resize(name: str, planes: FloatArray, scale: float) -> FloatArray:
    from PIL import Image

    height, width = (max(length * scale, 1.0) for length in planes.shape[1:])
    if width * height > _MAX_PIXELS:
        raise ValueError(
            f"{name}: resized by {scale:g} it would have more than {_MAX_PIXELS:,} pixels"
        )
    size = (round(width), round(height))
    # Pillow widens this filter when it shrinks, so nothing aliases.
    smooth = Image.Resampling.BILINEAR
    return np.stack([np.asarray(Image.fromarray(p).resize(size, smooth)) for p in planes])
