"""The arguments of ``roipool compare``, and what it does with them."""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import io
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import roipool
from roipool.cli import files
from roipool.cli.compare import inputs, report
from roipool.cli.compare.differences import Comparison, compare
from roipool.cli.compare.systems import SYSTEMS, Options, System, choose
from roipool.cli.text import printable

__all__ = ["add_parser", "run"]

_MAX_VALUES = 2**25
_FIGURE_FORMATS = (".png", ".pdf", ".svg")

_DESCRIPTION = """\
Pool the same boxes of the same picture as many systems do it, and show how far their outputs lie
apart. Without IMAGE and --boxes it uses a picture of its own."""

_EPILOG = """\
systems:
{systems}

Boxes are in pixels of the picture: lines of x1,y1,x2,y2 (or batch_index,x1,y1,x2,y2) as CSV, a list
of the same as JSON, a COCO file, or an array in an .npy file.

exit status: 0 done; 1 --check found a difference; 2 bad input."""


def add_parser(subparsers: Any, systems: Mapping[str, System] | None) -> None:
    """Add the ``compare`` command to the program's subparsers; None stands for `SYSTEMS`."""
    if systems is None:
        systems = SYSTEMS
    parser = subparsers.add_parser(
        "compare",
        help="compare what systems compute on a picture",
        description=_DESCRIPTION,
        epilog=_EPILOG.format(systems="\n".join(f"  {name}" for name in systems)),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(run=functools.partial(run, systems=systems))
    _add_input_arguments(parser)
    _add_output_arguments(parser)


def run(arguments: argparse.Namespace, systems: Mapping[str, System]) -> int:
    """Carry out the command.

    Parameters
    ----------
    arguments : argparse.Namespace
        What the parser made of the command line.
    systems : mapping of str to System
        Those that can be chosen, by name.

    Returns
    -------
    int
        The exit status.

    Raises
    ------
    ValueError, OSError, ImportError
        For bad input, before anything is written.
    """
    names, reference = _choose_systems(arguments, systems)
    _check_outputs(arguments)
    features = inputs.read_features(arguments.image, arguments.spatial_scale)
    boxes = inputs.read_boxes(arguments.boxes, features)
    _check_size(arguments, features, boxes)
    comparison = compare(
        {name: systems[name] for name in names},
        features.values,
        boxes.rois,
        _options(arguments),
        reference=reference,
        rtol=arguments.rtol,
        atol=arguments.atol,
    )
    _write_files(arguments, features, boxes, comparison)
    verdict, status = _verdict(arguments, comparison)
    # The files are complete by now and the status is known: a reader may stop whenever it likes.
    with contextlib.suppress(BrokenPipeError):
        if arguments.json in files.STDOUT:
            sys.stdout.write(report.as_json(comparison, _about(arguments, features, boxes)))
        else:
            report.print_report(comparison, _facts(arguments, features, boxes), verdict)
    return status


def _add_input_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("image", nargs="?", metavar="IMAGE", help="a picture, or a feature map as .npy or .npz")
    add("--boxes", metavar="FILE", help="the boxes, as CSV, JSON, COCO JSON or .npy")
    add("--systems", metavar="A,B,...", help="names, unique prefixes or patterns (default: all)")
    add(
        "--output-size",
        type=_output_size,
        default=(7, 7),
        metavar="7|7x7",
        help="rows and columns of the pooled grid (default: 7)",
    )
    add(
        "--spatial-scale",
        type=_positive,
        default=1.0,
        metavar="S",
        help="size of the map relative to the picture, such as 0.25 or 1/16 (default: 1)",
    )
    add(
        "--sampling-ratio",
        type=_sampling_ratio,
        default=0,
        metavar="N",
        help="samples per bin and axis where a system has them; 0: as the box needs (default)",
    )


def _add_output_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--reference",
        metavar="SYSTEM",
        help="measure the others against it (default: roipool.roi_align, else the first)",
    )
    add(
        "--check",
        action="store_true",
        help="exit with 1 if a system did not run or differs from the reference by more than "
        "atol + rtol * |reference|",
    )
    add("--rtol", type=_tolerance, default=1e-5, metavar="R", help="default: 1e-5")
    add("--atol", type=_tolerance, default=1e-6, metavar="A", help="default: 1e-6")
    add("--json", metavar="FILE", help="write every number as JSON; - prints it in place of tables")
    add("--save", metavar="FIG.png", help="draw the result; .png, .pdf or .svg")


def _output_size(text: str) -> tuple[int, int]:
    parts = text.lower().split("x")
    try:
        sides = [int(part) for part in parts]
    except ValueError:
        sides = []
    if len(sides) not in (1, 2) or min(sides) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a size like 7 nor like 7x7")
    return sides[0], sides[-1]


def _positive(text: str) -> float:
    """Read a positive number or a fraction such as 1/16."""
    try:
        over, _, under = text.partition("/")
        value = float(over) / float(under or 1)
    except (ValueError, ZeroDivisionError):
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return value


def _tolerance(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 0 or more")
    return value


def _sampling_ratio(text: str) -> int:
    """Read the ratio; some systems write -1 for adaptive, others 0, so both are understood."""
    try:
        return max(int(text), 0)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def _options(arguments: argparse.Namespace) -> Options:
    return Options(arguments.output_size, arguments.spatial_scale, arguments.sampling_ratio)


def _choose_systems(
    arguments: argparse.Namespace, systems: Mapping[str, System]
) -> tuple[list[str], str | None]:
    names = choose(arguments.systems, systems)
    if arguments.reference is None:
        reference = None
    else:
        matches = choose(arguments.reference, systems)
        if len(matches) > 1:
            raise ValueError(f"--reference fits several systems: {', '.join(matches)}")
        reference = matches[0]
        if reference not in names:
            names = [reference, *names]
    if arguments.check and len(names) < 2:
        raise ValueError("--check needs a system besides the reference")
    return names, reference


def _check_outputs(arguments: argparse.Namespace) -> None:
    """Find out before the work what would spoil its end."""
    importlib.import_module("rich")
    read = (arguments.image, arguments.boxes)
    files.check_outputs(arguments.json, arguments.save, "--save", _FIGURE_FORMATS, read)


def _check_size(
    arguments: argparse.Namespace, features: inputs.FeatureMap, boxes: inputs.Boxes
) -> None:
    """Bound the memory: a result of every group of systems is kept until the end."""
    rows, columns = arguments.output_size
    values = len(boxes.rois) * features.values.shape[1] * rows * columns
    if values > _MAX_VALUES:
        raise ValueError(
            f"each result would hold {values:,} numbers, more than {_MAX_VALUES:,}: give fewer "
            "boxes, channels or bins"
        )


def _write_files(
    arguments: argparse.Namespace,
    features: inputs.FeatureMap,
    boxes: inputs.Boxes,
    comparison: Comparison,
) -> None:
    picture = io.BytesIO()
    if arguments.save is not None:
        from roipool.cli.compare import figure

        title = f"{printable(Path(features.name).name)}: {_described(arguments)}"
        drawing = figure.draw(comparison, features, boxes.rois, title)
        figure.save(drawing, picture, Path(arguments.save).suffix.lower()[1:])
    if arguments.json not in (None, *files.STDOUT):
        content = report.as_json(comparison, _about(arguments, features, boxes))
        with files.replacing(arguments.json) as stream:
            stream.write(content.encode("ascii"))
    if arguments.save is not None:
        with files.replacing(arguments.save) as stream:
            stream.write(picture.getbuffer())


def _about(
    arguments: argparse.Namespace, features: inputs.FeatureMap, boxes: inputs.Boxes
) -> dict[str, Any]:
    return {
        "input": {
            "features": features.name,
            "features_shape": list(features.values.shape),
            "boxes": boxes.name,
            "boxes_count": len(boxes.rois),
        },
        "options": {
            "output_size": list(arguments.output_size),
            "spatial_scale": arguments.spatial_scale,
            "sampling_ratio": arguments.sampling_ratio,
            "rtol": arguments.rtol,
            "atol": arguments.atol,
            "threads": roipool.get_num_threads(),
        },
    }


def _facts(
    arguments: argparse.Namespace, features: inputs.FeatureMap, boxes: inputs.Boxes
) -> list[tuple[str, str]]:
    shape = " x ".join(map(str, features.values.shape))
    return [
        ("input", f"{features.name}, map {shape}"),
        ("boxes", f"{len(boxes.rois)} ({boxes.name})"),
        ("options", _described(arguments)),
    ]


def _described(arguments: argparse.Namespace) -> str:
    size = " x ".join(map(str, arguments.output_size))
    ratio = arguments.sampling_ratio or "adaptive"
    return f"output {size}, scale {arguments.spatial_scale:.6g}, sampling {ratio}"


def _verdict(arguments: argparse.Namespace, comparison: Comparison) -> tuple[list[str], int]:
    """Judge the check, if one was asked for; return what to say and the exit status."""
    if not arguments.check:
        return [], 0
    limit = f"{arguments.atol:g} + {arguments.rtol:g} * |{comparison.reference}|"
    outside = report.outside_tolerance(comparison)
    if not outside:
        return [f"check passed: every difference is within {limit}"], 0
    lines = [f"check failed: {len(outside)} of {len(comparison.results)} not within {limit}:"]
    for result in outside:
        apart = None if result.error else comparison.to_reference(result)
        what = f"greatest |diff| {apart.greatest:.3g}" if apart else "did not run"
        lines.append(f"  {result.name}: {what}")
    return lines, 1
