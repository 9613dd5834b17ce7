"""All kernel texts: each file with its definitions, types and layouts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

from roipool._cuda.arguments import FEATURE_STORAGE
from roipool._cuda.source import kernel_source
from roipool._definitions import OPS, TRAITS, VOLUME_OPS

ARCHITECTURES = (75, 80, 86, 89, 90, 100, 120)  # compute capabilities, times ten

# Definitions with maxima: the core's and those of `compat`, some of which also have averages.
# `test_compile.py` compares them with the kernels that the functions use.
ONLY_MAXIMA = (
    "onnx_roi_align_max",
    "openvino_roi_pool",
    "caffe_roi_align",
    "mxnet_roi_align",
    "mxnet_roi_align_gather",
)
MAXIMA = tuple(
    dict.fromkeys(
        (
            *(
                variant.definition
                for op in OPS.values()
                for variant in op.variants.values()
                if variant.has_argmax
            ),
            "mmcv_roi_align",
            "openvino_roi_align",
            "chainercv_ps_roi_pool",
            "chainercv_ps_roi_align",
            "megengine_roi_align",
            "caffe_roi_pool_gather",
            "mmcv_roi_pool",
            *ONLY_MAXIMA,
        )
    )
)
POINTWISE = tuple(name for name, traits in TRAITS.items() if traits.kind == "points")
MOVED = tuple(name for name, traits in TRAITS.items() if traits.kind == "moved")
BY_BIN = (*POINTWISE, *MOVED)
AVERAGES = tuple(name for name in TRAITS if name not in (*ONLY_MAXIMA, *BY_BIN))
FILES = {
    "average_forward": AVERAGES,
    "average_backward": AVERAGES,
    "average_backward_boxes": AVERAGES,
    "listed_bins_backward": (*AVERAGES, *MOVED),
    "maximum_forward": MAXIMA,
    "maximum_backward": MAXIMA,
    "unpool": ("roi_pool",),
    "points_forward": BY_BIN,
    "points_backward": POINTWISE,
    "points_backward_boxes": POINTWISE,
    "moved_backward_boxes": MOVED,
    "argmax_positions": MAXIMA,
    "assign_levels": ("roi_align",),
}
# Files whose maps may be volumes.
OF_VOLUMES = ("average_forward", "average_backward", "average_backward_boxes")
OF_BOXES = ("argmax_positions", "assign_levels")  # files that read no maps
OF_INTEGERS = ("average_forward", "maximum_forward")  # files that also read integers
STORAGE = {
    "float16": "Float16",
    "bfloat16": "Bfloat16",
    "float32": "float",
    "float64": "double",
    **dict.fromkeys(FEATURE_STORAGE, "float"),
}
BYTES = {"Float16": 2, "Bfloat16": 2, "float": 4, "double": 8}


class Text(NamedTuple):
    """One specialisation of a file."""

    file: str
    dtype: str
    layout: str
    pack: int
    definition: str
    argmax_type: str = ""  # for files that are specialised for it
    maps: str = ""  # "volumes" if that is what the maps are

    @property
    def reads_integers(self) -> bool:
        """Whether features are integers."""
        return self.dtype in FEATURE_STORAGE

    def source(self, **others: str | int) -> str:
        """Return the text; `others` replace default macros."""
        defines: dict[str, str | int] = {
            "storage": STORAGE[self.dtype],
            "definition": self.definition,
            "channels_last": int(self.layout == "NHWC"),
            "pack": self.pack,
            "position_sensitive": int(
                self.file == "listed_bins_backward" and self.definition not in MOVED
            ),
            "moved_bins": int(self.definition in MOVED),
            "of_volumes": int(self.maps == "volumes"),
            "plan_is_shared": 1,
            "offset": "int",
            "levels": 1,
        }
        if self.reads_integers:
            defines["feature_storage"] = FEATURE_STORAGE[self.dtype]
        if self.argmax_type:
            defines["argmax_type"] = self.argmax_type
            defines["argmax_is_cell"] = int(TRAITS[self.definition].kind == "cells")
        return kernel_source(f"cuda/{self.file}.cu", **{**defines, **others})

    def __str__(self) -> str:
        return "-".join(str(field) for field in self if field != "")


def packs(file: str, dtype: str, layout: str) -> tuple[int, ...]:
    """Return the possible numbers of channels per thread."""
    size = BYTES[STORAGE[dtype]]
    if file == "average_backward":
        return (1, 2, 4) if size < 8 else (1,)
    if file == "unpool":
        return (1, 2) if size < 8 and layout == "NHWC" else (1,)
    if not file.endswith("forward"):
        return (1,)
    return (1, 4) if layout == "NCHW" else (1, 16 // size)


def argmax_types(file: str) -> tuple[str, ...]:
    """Return the types of an argmax."""
    has_argmax = file in ("maximum_forward", "unpool")
    return ("int", "wide_int") if has_argmax else ("",)


def every_type_and_layout(file: str, definition: str) -> Iterator[Text]:
    """Return the texts of a file for one of its definitions."""
    for dtype in STORAGE:
        for layout in ("NCHW",) if file in OF_BOXES else ("NCHW", "NHWC"):
            if file in OF_BOXES and BYTES[STORAGE[dtype]] == 2:
                continue  # boxes and positions are only float32 or float64
            if dtype in FEATURE_STORAGE and file not in OF_INTEGERS:
                continue
            for pack in packs(file, dtype, layout):
                for argmax_type in argmax_types(file):
                    yield Text(file, dtype, layout, pack, definition, argmax_type)


def every_specialisation() -> Iterator[Text]:
    """Return all texts."""
    for file, definitions in FILES.items():
        for definition in definitions:
            yield from every_type_and_layout(file, definition)


def of_volumes() -> Iterator[Text]:
    """Return each file for volumes in every type and layout."""
    for op in VOLUME_OPS.values():
        for variant, file in itertools.product(op.variants.values(), OF_VOLUMES):
            for text in every_type_and_layout(file, variant.definition):
                yield text._replace(maps="volumes")


def every_file() -> Iterator[Text]:
    """Return each file in every type and layout, for ROI align if it supports that."""
    for file, definitions in FILES.items():
        yield from every_type_and_layout(
            file, "roi_align" if "roi_align" in definitions else definitions[0]
        )


def covering() -> Iterator[tuple[int, Text]]:
    """Return texts that together cover every file and every value of each parameter.

    Files with the same definitions divide the values among them, since they share the planning
    headers. Every file is compiled for the oldest architecture, which has the fewest instructions;
    `every_file` has each file in every type, layout and pack.
    """
    for definitions in dict.fromkeys(FILES.values()):
        files = [file for file, its in FILES.items() if its == definitions]
        forms = {file: _forms(file) for file in files}
        for number in range(max(len(definitions), *map(len, forms.values()))):
            file = files[number % len(files)]
            # An even number of files would have every other form each: some are exchanged.
            form = number ^ (number // len(files) % 2 if len(files) % 2 == 0 else 0)
            yield (
                ARCHITECTURES[number // len(files) % len(ARCHITECTURES)],
                Text(
                    file,
                    *forms[file][form % len(forms[file])],
                    definitions[number % len(definitions)],
                    argmax_types(file)[number // 2 % len(argmax_types(file))],
                ),
            )

    for file in OF_INTEGERS:
        texts = (text for text in every_type_and_layout(file, "roi_align") if text.reads_integers)
        yield from zip(itertools.cycle(ARCHITECTURES), texts, strict=False)


def _forms(file: str) -> list[tuple[str, str, int]]:
    """Return every type, integers aside, layout and pack of a file, each combination once."""
    texts = (text for text in every_type_and_layout(file, "any") if not text.reads_integers)
    return list(dict.fromkeys(text[1:4] for text in texts))


def covers(texts: list[tuple[int, Text]]) -> dict[str, set[object]]:
    """Return the values of each parameter that texts cover."""
    found: dict[str, set[object]] = {}
    for architecture, text in texts:
        kind = FILES[text.file]
        found.setdefault("architecture", set()).add(architecture)
        found.setdefault("oldest", set()).add((text.file, architecture == ARCHITECTURES[0]))
        found.setdefault("type and layout", set()).add((kind, text.dtype, text.layout))
        found.setdefault("pack", set()).add((kind, text.pack > 1))
        found.setdefault("definition", set()).add((kind, text.definition))
        found.setdefault("argmax type", set()).add((text.file, text.argmax_type))
    return found
