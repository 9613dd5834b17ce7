"""``roipool compare``: run every system on the same boxes and show how they differ."""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from roipool._box_forms import MAP_FORMS, VOLUME_FORMS
from roipool.cli.text import seconds
from roipool.tools.compare import arguments as read
from roipool.tools.compare.systems import SYSTEMS, VOLUME_SYSTEMS
from roipool.tools.libraries.functions import ARRAYS

if TYPE_CHECKING:
    from roipool.tools.compare.problem import Compute

__all__ = ["add_parser", "run"]

_DESCRIPTION = """\
Pool the same boxes of one picture with many systems, show how much the results
differ, and explain why. A system is the pooling function of one framework, such
as torchvision.roi_align. Without IMAGE and --boxes, a built-in picture is used.
With --volume, the boxes are those of a volume."""

_EPILOG = """\
--list prints the names of systems. In a name such as
torchvision.roi_align@torchvision, the part after @ tells what computes the
system: an installed library, cuda or oracle. Without @, it is roipool on the
CPU.

examples:
  roipool compare
  roipool compare photo.jpg --boxes boxes.csv --spatial-scale 1/16 --html a.html
  roipool compare map.npy --boxes coco.json --systems 'torchvision.*' --json -
  roipool compare --implementations torchvision,onnxruntime --gradients features
  roipool compare --implementations mxnet \\
      --implementation-python mxnet=old/bin/python
  roipool compare --implementation my_project.pooling:roi_align
  roipool compare map.npy --boxes boxes.csv --output-size 2 --values 3 4 8 9
  roipool compare --volume --gradients features --save slices.png
  roipool compare scan.npy --volume --boxes nodules.csv --box-format zyxzyx
  roipool compare photo.jpg --masks masks.npy --boxes boxes.csv --html a.html
  roipool compare --engines cpu,oracle --systems 'roipool.*' --check

exit status: 0 success; 1 --check failed; 2 bad input."""


# As in shtab, which is imported only to print a completion script.
_FILES = {"bash": "_shtab_compgen_files", "zsh": "_files", "tcsh": "f"}


def add_parser(subparsers: Any, systems: Mapping[str, Compute] | None) -> None:
    """Add the ``compare`` command to the program's subparsers; None means `SYSTEMS`."""
    parser = subparsers.add_parser(
        "compare",
        help="compare the results of systems on a picture, and explain the differences",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(run=functools.partial(run, systems=systems, default_of=parser.get_default))
    _add_input(parser.add_argument_group("input"))
    chosen = parser.add_argument_group("what to compare")
    chosen.add_argument("--list", action=_List, nargs=0, systems=systems, help="print the systems")
    _add_implementations(chosen)
    _add_output(parser.add_argument_group("output"))


def run(
    arguments: argparse.Namespace,
    systems: Mapping[str, Compute] | None,
    default_of: Callable[[str], Any],
) -> int:
    """Run the command; see `roipool.tools.compare.command`, and `.mask_report` for masks."""
    if arguments.masks is None:
        if arguments.threshold != default_of("threshold"):
            raise ValueError("--threshold is for --masks")
        from roipool.tools.compare import command

        return command.run(arguments, systems)
    from roipool.tools.compare import mask_report, masks

    for name, value in vars(arguments).items():
        if name not in (*masks.OPTIONS, "run") and value != default_of(name):
            option = name.replace("_", "-")
            raise ValueError(f"--{option}: not with --masks, which are pasted, not pooled")
    return mask_report.run(arguments)


class _List(argparse.Action):
    """Prints the names of systems, a line each, and exits."""

    def __init__(self, *names: Any, systems: Mapping[str, Compute] | None, **more: Any) -> None:
        super().__init__(*names, **more)
        self._systems = systems

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, *given: Any
    ) -> NoReturn:
        """Print those that the program was started with, else those of maps and of volumes."""
        print("\n".join(self._systems or [*SYSTEMS, *VOLUME_SYSTEMS]))
        parser.exit()


def _add_file(group: Any, *names: str, **options: Any) -> None:
    """Add an argument that shells complete with file names."""
    group.add_argument(*names, **options).complete = _FILES


def _add_input(group: Any) -> None:
    add, add_file = group.add_argument, functools.partial(_add_file, group)
    add_file(
        "image",
        nargs="?",
        metavar="IMAGE",
        help="a picture, or a feature map or volume as .npy, .npz or .safetensors",
    )
    add(
        "--volume",
        action="store_true",
        help="IMAGE is a volume, (D, H, W) or (C, D, H, W); an array (N, C, D, H, W) always is. "
        "Without IMAGE, a built-in volume",
    )
    add(
        "--make",
        type=read.map_shape,
        metavar="CxHxW",
        help="use a map of random numbers instead of IMAGE, such as 4x32x48, or a volume, such as "
        "4x16x32x32",
    )
    add_file(
        "--boxes",
        metavar="FILE",
        help="the boxes: CSV, JSON, .npy, or a file of COCO, Pascal VOC (.xml), LabelMe, GeoJSON "
        "or YOLO",
    )
    _add_masks(group)
    _add_box_form(group)
    add(
        "--output-size",
        type=read.output_size,
        default=(7,),
        metavar="7|7x7",
        help="rows and columns of the pooled grid, or 7x7x7: planes, rows and columns (default: 7)",
    )
    add(
        "--spatial-scale",
        type=read.positive,
        default=1.0,
        metavar="S",
        help="size of the map relative to the picture, such as 0.25 or 1/16 (default: 1)",
    )
    add(
        "--sampling-ratio",
        type=read.sampling_ratio,
        default=0,
        metavar="N",
        help="samples per bin and axis, for systems that sample; 0: adaptive (default)",
    )


def _add_masks(group: Any) -> None:
    _add_file(
        group,
        "--masks",
        metavar="FILE",
        help="masks of a detector, one for each box, from 0 to 1: an array (K, h, w). Instead of "
        "pooling, paste them into IMAGE by the rules of torchvision, detectron2, mmdetection and "
        "Matterport",
    )
    group.add_argument(
        "--threshold",
        type=read.threshold,
        default=0.5,
        metavar="T",
        help="least value of pixels that are set, with --masks (default: 0.5)",
    )


def _add_box_form(group: Any) -> None:
    add = group.add_argument
    add(
        "--box-format",
        choices=(*MAP_FORMS, *VOLUME_FORMS),
        metavar="FORM",
        help="the meaning of a box's numbers, unless the file names them: "
        f"{', '.join(MAP_FORMS)} (default: xyxy), or of volumes "
        f"{', '.join(VOLUME_FORMS)} (default: xyzxyz); the angle of cxcywha is in radians, "
        "counter-clockwise; tensorflow is y1, x1, y2, x2 as fractions of height - 1 and width - 1; "
        "yolo is a class, and cxcywh as fractions",
    )
    add(
        "--normalized",
        action="store_true",
        help="boxes are fractions of the picture's width and height, and of a volume's depth, not "
        "pixels",
    )
    add("--degrees", action="store_true", help="angles are in degrees, not radians")


def _add_implementations(group: Any) -> None:
    add = group.add_argument
    add("--systems", metavar="A,B,...", help="systems, unique prefixes or patterns (default: all)")
    add(
        "--engines",
        type=read.names_of(read.ENGINES),
        default=["cpu"],
        metavar="A,B,...",
        help="engines that compute them: cpu, cuda (a GPU, through CuPy), oracle (slow) "
        "(default: cpu)",
    )
    _add_libraries(group)
    _add_function(group)
    add(
        "--values",
        nargs="+",
        metavar=("FILE", "NUMBER"),
        help="pooled values, in a file or here, to learn which systems, options and mistakes give "
        "them",
    )
    add(
        "--gradients",
        type=read.names_of(("features", "boxes")),
        default=[],
        metavar="A,B",
        help="also compare gradients: with respect to features, boxes or both",
    )


def _add_libraries(group: Any) -> None:
    add = group.add_argument
    add(
        "--implementations",
        type=read.names_of(read.PROGRAMS),
        default=[],
        metavar="A,B,...",
        help=f"also run installed libraries: {', '.join(read.PROGRAMS)}",
    )
    add(
        "--implementation-python",
        type=read.program_python,
        action="append",
        default=[],
        metavar="NAME=PYTHON",
        help="the interpreter of a library's environment, if not this one",
    )
    add(
        "--timeout",
        type=seconds,
        default=120.0,
        metavar="SECONDS",
        help="time limit of a call of a library or of your function (default: 120)",
    )


def _add_function(group: Any) -> None:
    add = group.add_argument
    add(
        "--implementation",
        action="append",
        default=[],
        metavar="MODULE:FUNCTION",
        help="your function(features, rois, output_size, spatial_scale, sampling_ratio), also as "
        "path/to/file.py:function; it runs in a separate process",
    )
    add(
        "--arrays",
        "--implementation-arrays",
        choices=tuple(ARRAYS),
        default="numpy",
        metavar="LIBRARY",
        help=f"arrays of your function: {', '.join(ARRAYS)} (default: numpy); with torch its "
        "gradients can be compared",
    )
    add(
        "--python",
        default=sys.executable,
        metavar="FILE",
        help="the interpreter that runs your function, if not this one",
    )


def _add_output(group: Any) -> None:
    add, add_file = group.add_argument, functools.partial(_add_file, group)
    add(
        "--reference",
        metavar="SYSTEM",
        help="the system to measure all others against (default: averages against "
        "roipool.roi_align, maxima against roipool.roi_pool)",
    )
    add(
        "--details",
        action="store_true",
        help="print all tables: every system, each pair of groups, the reasons with numbers",
    )
    add(
        "--check",
        action="store_true",
        help="exit with status 1 if a system did not run or differs from the reference by more "
        "than atol + rtol * |reference|",
    )
    add("--rtol", type=read.tolerance, default=1e-5, metavar="R", help="of --check (default: 1e-5)")
    add("--atol", type=read.tolerance, default=1e-6, metavar="A", help="of --check (default: 1e-6)")
    add_file(
        "--json", metavar="FILE", help="write every number as JSON; - prints it instead of tables"
    )
    add_file("--save", metavar="FIG.png", help="draw the result as .png, .pdf or .svg")
    add_file("--html", metavar="PAGE.html", help="write an interactive page of boxes and samples")
