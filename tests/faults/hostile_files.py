"""Random hostile files and options for ``roipool compare``.

Pictures, arrays and lists of boxes are damaged: bytes changed, cut off, repeated, numbers replaced.
Options are drawn from right and wrong ones. The program may end with status 0 and its outputs, or
with status 2, one line on standard error and nothing written; its inputs stay as they are.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[1]))

from _support.hostile import CUT_SHORT, Outcome, TimeIsUpError, limit_memory, main, time_limit

from roipool import cli

Random = np.random.Generator
MEBIBYTES = 4096
SECONDS = 30.0
MAX_LINE = 1100
PIXELS = np.random.default_rng(0).integers(0, 255, (24, 32, 3), np.uint8)


# ---- Files as they should be


def picture(kind: str, mode: str = "RGB") -> bytes:
    """Return a picture of this format."""
    stream = io.BytesIO()
    Image.fromarray(PIXELS).convert(mode).save(stream, kind)
    return stream.getvalue()


def npy(array: np.ndarray) -> bytes:
    """Return an array as NumPy stores it; one of objects is pickled."""
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=True)
    return stream.getvalue()


def npz(compressed: bool, **arrays: np.ndarray) -> bytes:
    """Return several arrays as NumPy stores them."""
    stream = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(stream, **arrays)
    return stream.getvalue()


def safetensors(array: npt.NDArray[np.generic], end: int | None = None) -> bytes:
    """Return a file of one tensor; its header may claim more than there is."""
    dtype = "BOOL" if array.dtype == bool else "F32"
    place = [0, end or array.nbytes]
    entry = {"dtype": dtype, "shape": array.shape, "data_offsets": place}
    header = json.dumps({"features": entry}).encode()
    return len(header).to_bytes(8, "little") + header + array.tobytes()


BOXES = [[0, 1, 2, 20, 18], [0, 0.5, 0, 9.25, 13], [0, 30, 20, 4, 2]]
MAP = np.arange(480, dtype=np.float32).reshape(1, 2, 12, 20)
COCO = {
    "images": [{"id": 1, "file_name": "input.png"}, {"id": 2, "file_name": "b.png"}],
    "annotations": [{"image_id": 1, "bbox": [1, 2, 9, 8], "score": 0.5}],
}
VOC = (
    b"<annotation><bndbox><xmin>2</xmin><ymin>3</ymin><xmax>8</xmax><ymax>7</ymax></bndbox>"
    b"</annotation>"
)
LABELME = {"shapes": [{"points": [[1, 2], [8, 9]], "shape_type": "circle"}]}
POLYGON = {"type": "Polygon", "coordinates": [[[2, 3], [8, 3], [8, 7], [2, 3]]]}
INPUTS: dict[str, list[bytes]] = {
    ".png": [picture("PNG"), picture("PNG", "P"), picture("PNG", "LA"), picture("PNG", "I;16")],
    ".jpg": [picture("JPEG"), picture("JPEG", "CMYK")],
    ".gif": [picture("GIF")],
    ".bmp": [picture("BMP")],
    ".tiff": [picture("TIFF"), picture("TIFF", "F"), picture("TIFF", "1")],
    ".webp": [picture("WEBP")],
    ".ppm": [picture("PPM")],
    ".eps": [picture("EPS"), picture("PDF"), picture("ICO")],
    ".npy": [npy(MAP), npy(MAP.astype("c8")), npy(np.array([{}, None])), npy(MAP[0, 0] > 9)],
    ".safetensors": [safetensors(MAP), safetensors(MAP[0, 0] > 9), safetensors(MAP, 2**40)],
    ".npz": [npz(True, features=MAP), npz(False, a=MAP, b=MAP), npz(True, one=np.zeros((9, 9)))],
}
LISTS: dict[str, list[bytes]] = {
    ".csv": [
        "\n".join(",".join(map(str, box)) for box in BOXES).encode(),
        b"x1;y1;x2;y2;label\n1;2;3;4;cup\n",
        b'# x1 y1 x2 y2\n1 2 "3" 4\n',
        b"1,2,3,4\n" * 500,
    ],
    ".json": [
        json.dumps(content).encode()
        for content in (BOXES, {"boxes": BOXES}, COCO, [{"x1": 1, "y1": 2, "x2": 3, "y2": 4}])
    ],
    ".xml": [VOC, VOC.replace(b"2", b"&lt;"), b"<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>"],
    ".geojson": [json.dumps(content).encode() for content in (POLYGON, LABELME)],
    ".txt": [b"0 0.5 0.5 0.2 0.3\n7 0.1 0.1 0.2 0.2 0.9\n", b"1 0 0 1 0 1 1\n"],
    ".npy": [npy(np.array(BOXES)), npy(np.array(BOXES)[:, 1:].astype("f2")), npy(np.zeros(0))],
    ".npz": [npz(True, boxes=np.array(BOXES))],
}

VOLUME = MAP.reshape(1, 2, 3, 4, 20)
INPUTS_OF_VOLUMES = {
    ".npy": [npy(VOLUME), npy(VOLUME[0]), npy(VOLUME[0, 0] > 9), npy(VOLUME[:, :, :0])],
    ".npz": [npz(True, features=VOLUME)],
}
LISTS_OF_VOLUMES: dict[str, list[bytes]] = {
    ".csv": [b"0,1,1,0,9,3,2\n0,8,3,2,1,0,0\n", b"x1;y1;z1;x2;y2;z2\n1;0;0;9;3;3\n", b"1,2,3,4\n"],
    ".json": [json.dumps([[1, 0, 0, 9, 3, 2.5]]).encode(), json.dumps(COCO).encode()],
    ".npy": [npy(np.ones((2, 7))), npy(np.ones((2, 6), "f2")), npy(np.array(BOXES))],
}

# ---- Damage

NUMBERS = b"1e999 nan -1 999999999999999999999 1_0 (1,2,-3)".split()
SYNTAX = b'null true " [ {} , # "images":5, \'O\' PK\3\4'.split()
CONTROLS = (b"\0", b"\n", b"\r", b"\xff\xfe", b"\xe2\x80\xa8", b"\xff\xff\xff\x7f")
WORDS = (*NUMBERS, *SYNTAX, *CONTROLS, b"[" * 3000, b"9" * 5000, b"a" * 150_000)


def put(rng: Random, content: bytes, piece: bytes, replaced: int = 0) -> bytes:
    """Put a piece anywhere, in place of so many bytes."""
    at = int(rng.integers(len(content) + 1))
    return content[:at] + piece + content[at + replaced :]


DAMAGES: list[Callable[[Random, bytes], bytes]] = [
    lambda rng, c: c[: rng.integers(len(c) + 1)],
    lambda rng, c: put(rng, c, bytes(rng.integers(0, 256, 1, np.uint8)), 1),
    lambda rng, c: put(rng, c, bytes(rng.integers(0, 256, 4, np.uint8)), 4),
    lambda rng, c: put(rng, c, b"\xff\xff\xff\xff", 4),
    lambda rng, c: put(rng, c, b"", int(rng.integers(1, 40))),
    lambda rng, c: put(rng, c, WORDS[rng.integers(len(WORDS))]),
    lambda rng, c: put(rng, c, WORDS[rng.integers(len(WORDS))], int(rng.integers(1, 9))),
    lambda rng, c: put(rng, c, c[rng.integers(len(c) + 1) :]),
    lambda rng, c: bytes(rng.integers(0, 256, 200, np.uint8)),
]


def damaged(rng: Random, content: bytes) -> bytes:
    """Damage a file none to three times."""
    for _ in range(rng.choice([0, 0, 1, 1, 2, 3])):
        content = DAMAGES[rng.integers(len(DAMAGES))](rng, content)
    return content


def drawn_file(rng: Random, kinds: dict[str, list[bytes]], stem: str) -> str:
    """Write a file, at times with another file's content or an odd name; return its name."""
    suffix = str(rng.choice(list(kinds)))
    source = suffix if rng.random() < 0.95 else str(rng.choice(list(kinds)))
    content = damaged(rng, kinds[source][rng.integers(len(kinds[source]))])
    name = os.fsdecode(rng.choice([stem.encode()] * 9 + [b"caf\xe9", b"a\n\x1b[31m", b"$x$"]))
    Path(name + suffix).write_bytes(content)
    return name + suffix


# ---- Options

VALUES: dict[str, list[str]] = {
    "--spatial-scale": ["1", "1/16", "0.5", "1e308", "1e-320", "nan", "1/0", "-1", "1e-9", "9e3"],
    "--output-size": ["2", "1x3", "0", "7x", "99999", "9" * 30, "9" * 5000, "1x1x1", "100x100"],
    "--sampling-ratio": ["0", "-1", "3", "64", "1e3", str(10**12)],
    "--systems": ["roipool.*", "caffe*", "*", "nothing", ",", "[", "tensorflow*", "x" * 10**5],
    "--reference": ["roipool.roi_align", "mxnet.ROIAlign", "*", ""],
    "--rtol": ["0", "1e-5", "inf", "x"],
    "--json": ["out.json", "-", "no/where.json", ".", "", "input.png", "/dev/null", "a\0b"],
    "--save": ["out.png", "out.svg", "out.bmp", "/proc/self/mem.png"],
    "--html": ["out.html", "out.txt", ".", "no/where.html", "out.json"],
    "--box-format": [
        "xywh",
        "yolo",
        "tensorflow",
        "cxcywh",
        "cxcywha",
        "yxyx",
        "",
        "x1y1",
        "zyxzyx",
        "xyzwhd",
    ],
    "--make": ["2x8x9", "0x1x1", "9" * 30, "1x99999x99999", "1x1x1", "1x2x3x4"],
    "--gradients": ["features", "boxes", "features,boxes", "angles", ","],
    "--engines": ["cpu", "cuda,cpu", "cuda", "", "tpu"],
    "--implementation": ["math:sqrt", "nothing", "a\0b:f", "os:", "no_such:f", "a\n.py:f"],
    "--implementations": ["caffe", ""],
}
# A figure takes a second, and most values of the others are refused.
RARE = {"--save": 0.03} | dict.fromkeys(
    ("--html", "--box-format", "--make", "--gradients", "--engines", "--implementation"), 0.02
)
RARE["--implementations"] = 0.01


def drawn_options(rng: Random) -> list[str]:
    """Return options, right and wrong."""
    options = ["--systems", "roipool.roi_pool,onnx.MaxRoiPool", "--output-size", "2"]
    for name, values in VALUES.items():
        if rng.random() < RARE.get(name, 0.08):
            options += [name, values[rng.integers(len(values))]]
    return [*options, "--check"] if rng.random() < 0.1 else options


# ---- Calls


def contents() -> dict[str, bytes]:
    """Return the files here."""
    return {path.name: path.read_bytes() for path in Path().iterdir()}


def run_here(arguments: list[str]) -> tuple[int, str, str]:
    """Run the program; return its status and what it printed."""
    streams = [io.TextIOWrapper(io.BytesIO(), "ascii", "surrogateescape") for _ in range(2)]
    streams[1].reconfigure(errors="backslashreplace")
    with contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]):
        status = cli.main(arguments)
    texts = []
    for stream in streams:
        stream.flush()
        texts.append(stream.buffer.getvalue().decode("ascii", "surrogateescape"))  # type: ignore[attr-defined]
    return status, texts[0], texts[1]


def fault_of(
    arguments: list[str], status: int, out: str, err: str, before: dict[str, bytes]
) -> str:
    """Say what is wrong with how the program ended."""
    after = contents()
    if any(after.get(name) != content for name, content in before.items()):
        return "an input has changed"
    new = sorted(set(after) - set(before))
    if status == 2:
        if out or new:
            return f"printed {len(out)} characters, wrote {new}"
        if err.count("\n") != 1 or not err.startswith("roipool: error: ") or len(err) > MAX_LINE:
            return f"no one short line: {err[:MAX_LINE]}"
        return err if "a bug in roipool" in err else ""
    if status not in (0, 1) or err:
        return f"status {status}: {err[:MAX_LINE]}"
    unexpected = [name for name in new if name not in arguments]
    return f"left {unexpected}" if unexpected else ""


def try_call(seed: int, number: int) -> Outcome:
    """Run the program once, in a folder of its own."""
    rng = np.random.default_rng((seed, number))
    home, folder = Path.cwd(), tempfile.mkdtemp()
    os.chdir(folder)
    try:
        is_volume = rng.random() < 0.15
        inputs, lists = (INPUTS_OF_VOLUMES, LISTS_OF_VOLUMES) if is_volume else (INPUTS, LISTS)
        arguments = ["compare", drawn_file(rng, inputs, "input")]
        if rng.random() < 0.7:
            arguments += ["--boxes", drawn_file(rng, lists, "boxes")]
        if rng.random() < 0.03:
            arguments += [str(rng.choice(["--normalized", "--degrees"]))]
        options = drawn_options(rng)
        if rng.random() < 0.1:
            options = ["--masks", drawn_file(rng, inputs, "masks")]
        arguments += options
        if is_volume:
            arguments += ["--volume", "--systems", "*"][: rng.choice([1, 3, 3, 3])]
        before = contents()
        try:
            with time_limit(SECONDS):
                status, out, err = run_here(arguments)
        except TimeIsUpError:
            return Outcome(CUT_SHORT)
        fault = fault_of(arguments, status, out, err, before)
        return Outcome(f"status {status}", f"{arguments}: {fault}" if fault else "")
    finally:
        os.chdir(home)
        shutil.rmtree(folder)


if __name__ == "__main__":
    if "--worker" in sys.argv:
        # Now: an import that the time limit cuts short leaves a broken module.
        for module in ("rich.table", "matplotlib.backends.backend_agg", "matplotlib.figure"):
            importlib.import_module(module)
        limit_memory(MEBIBYTES)
    sys.exit(main(str(Path(__file__).resolve()), __doc__ or "", try_call))
