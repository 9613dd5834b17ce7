"""Runs ``roipool compare``."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import itertools
import math
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import roipool
from roipool.cli import files, stdout
from roipool.cli.progress import progress
from roipool.cli.text import printable
from roipool.tools.compare import functions, inputs, json_output, report, values
from roipool.tools.compare.differences import PartComparison, compare
from roipool.tools.compare.engines import ENGINES, missing
from roipool.tools.compare.patterns import candidates, choose, system_of
from roipool.tools.compare.problem import Compute, Options, Problem, Unavailable
from roipool.tools.compare.programs import Programs
from roipool.tools.compare.result import Findings
from roipool.tools.compare.systems import INSTALLED, LISTED, SYSTEMS, VOLUME_SYSTEMS

__all__ = ["run"]

_MAX_VALUES = 2**25
_FIGURE_FORMATS = (".png", ".pdf", ".svg")
_PAGE_FORMATS = (".html", ".htm")


def run(arguments: argparse.Namespace, systems: Mapping[str, Compute] | None) -> int:
    """Run the command.

    Parameters
    ----------
    systems : mapping of str to Compute, optional
        The systems to choose from, by name; by default `SYSTEMS` on the engines chosen.

    Raises
    ------
    ValueError, OSError, ImportError
        For bad input, before anything is written.
    """
    _check_outputs(arguments)
    with contextlib.ExitStack() as processes:
        findings = _findings(arguments, systems, processes)
    _write_files(arguments, findings)
    verdict, status = _verdict(arguments, findings)
    # The files are complete and the status is known, so the reader may stop at any time.
    with stdout.reader_may_stop():
        if arguments.json in files.STDOUT:
            sys.stdout.write(json_output.as_json(findings, _about(arguments, findings)))
        else:
            style = report.Style(arguments.details, arguments.reference is not None)
            notes = [*slips(arguments, findings.problem), *notes_on_input(findings)]
            report.print_report(findings, _described(findings), notes, verdict, style)
    return status


def _findings(
    arguments: argparse.Namespace,
    systems: Mapping[str, Compute] | None,
    processes: contextlib.ExitStack,
) -> Findings:
    """Run the comparison; `processes` ends the processes of other implementations."""
    pythons = _pythons(arguments)
    features = inputs.read_features(
        arguments.image, arguments.spatial_scale, arguments.make, arguments.volume
    )
    if features.is_volume:
        _check_offered_for_volumes(arguments)
    options = _options(arguments, features)
    scale = arguments.spatial_scale
    boxes = inputs.read_boxes(arguments.boxes, features, _box_form(arguments), scale)
    problem = Problem(features.values, boxes.rois, options)
    _check_size(problem)
    own = _own_functions(arguments, processes)
    given = values.read_values(arguments.values, problem) if arguments.values else None
    if given is not None:
        own[values.NAME] = values.compute_of(given)
        arguments.reference = arguments.reference or values.NAME
    engines, absent = _engines(arguments, systems, problem.is_volume)
    _check_names(arguments, [*engines, *_offered(arguments)], list(own), problem.is_volume)
    programs = processes.enter_context(
        Programs(arguments.implementations, pythons, roipool.get_num_threads(), arguments.timeout)
    )
    there = {**engines, **dict(programs.computes())}
    chosen, reference = _choose(arguments, there, own)
    parts = _compare_all(arguments, chosen, reference, problem)
    absent |= programs.absent
    return Findings(problem, features, boxes, parts, programs.versions, absent, given)


def _check_outputs(arguments: argparse.Namespace) -> None:
    """Check the output paths before the work starts."""
    outputs = {"--json": arguments.json, "--save": arguments.save, "--html": arguments.html}
    files.check_outputs(outputs, (arguments.image, arguments.boxes))
    files.check_figure(arguments.save, "--save", _FIGURE_FORMATS)
    if arguments.html is not None and Path(arguments.html).suffix.lower() not in _PAGE_FORMATS:
        raise ValueError(f"{arguments.html}: --html writes {', '.join(_PAGE_FORMATS)}")
    if arguments.html is not None:
        importlib.import_module("PIL")
    if arguments.image is not None and arguments.make is not None:
        raise ValueError("give either IMAGE or --make, not both")


def _check_offered_for_volumes(arguments: argparse.Namespace) -> None:
    """Reject options that only maps have."""
    if arguments.html is not None:
        raise ValueError("--html: the page cannot show volumes; --save draws a figure of slices")
    if arguments.implementations:
        names = ", ".join(arguments.implementations)
        raise ValueError(f"--implementations {names}: no installed library pools volumes")


def _pythons(arguments: argparse.Namespace) -> dict[str, str]:
    pythons = dict(arguments.implementation_python)
    for name in pythons:
        if name not in arguments.implementations:
            raise ValueError(f"--implementation-python {name}: not one of --implementations")
    return pythons


def _own_functions(
    arguments: argparse.Namespace, processes: contextlib.ExitStack
) -> dict[str, Compute]:
    computes: dict[str, Compute] = {}
    arrays, python, limit = arguments.arrays, arguments.python, arguments.timeout
    for text in arguments.implementation:
        own = functions.opened(text, arrays, python, limit, bool(arguments.gradients))
        processes.callback(own.close)
        computes[text] = functions.compute_of(own, arrays)
    return computes


def _engines(
    arguments: argparse.Namespace, systems: Mapping[str, Compute] | None, is_volume: bool
) -> tuple[dict[str, Compute], dict[str, str]]:
    """Return the systems on each engine, by name, and the reasons for absent engines."""
    if systems is not None:
        return dict(systems), {}
    rows = VOLUME_SYSTEMS if is_volume else SYSTEMS
    computes: dict[str, Compute] = {}
    absent: dict[str, str] = {}
    for engine in arguments.engines:
        reason = missing(engine)
        if reason is not None:
            absent[engine] = reason
            continue
        suffix = "" if engine == "cpu" else f"@{engine}"
        computes |= {f"{name}{suffix}": ENGINES[engine](row) for name, row in rows.items()}
    return computes, absent


def _offered(arguments: argparse.Namespace) -> list[str]:
    return [f"{system}@{name}" for name in arguments.implementations for system in INSTALLED[name]]


def _check_names(
    arguments: argparse.Namespace, names: list[str], own: list[str], is_volume: bool
) -> None:
    """Check, before any library starts, that --systems and --reference match something."""
    for text in filter(None, (arguments.systems, arguments.reference)):
        _check_kind(text, [*names, *own], is_volume)
    chosen = choose(arguments.systems, names)
    taking_part = {name for name in names if name in chosen or system_of(name) in chosen} | {*own}
    if arguments.reference is not None:
        matches = choose(arguments.reference, [*names, *own])
        if len(matches) > 1:
            raise ValueError(f"--reference matches several systems: {', '.join(matches)}")
        taking_part.add(_first_of(matches[0], [*names, *own]))
    if arguments.check and len(taking_part) < 2:
        raise ValueError("--check needs a system besides the reference")


def _check_kind(text: str, names: list[str], is_volume: bool) -> None:
    """Reject systems of volumes for a map, and systems of maps for a volume."""
    others = SYSTEMS if is_volume else VOLUME_SYSTEMS
    for part in text.split(","):
        system = system_of(part.strip())
        if candidates(system, others) and not candidates(system, [*map(system_of, names)]):
            what = "maps, not volumes" if is_volume else "volumes: give --volume"
            raise ValueError(f"{system} pools {what}")


def _first_of(system: str, names: Iterable[str]) -> str:
    """Return the first implementation of a system, which may also be an implementation's name."""
    return next(name for name in names if system in (name, system_of(name)))


def _choose(
    arguments: argparse.Namespace, available: dict[str, Compute], own: dict[str, Compute]
) -> tuple[dict[str, Compute], str | None]:
    """Return the implementations to run, in their order, and the requested reference."""
    systems = _choose_available(arguments, list(available))
    wanted = [name for name in available if name in systems or system_of(name) in systems]
    order = list(dict.fromkeys(map(system_of, systems)))
    wanted.sort(key=lambda name: order.index(system_of(name)))  # stable: engines keep their order
    everything = available | own
    chosen = {name: available[name] for name in wanted} | own
    if not chosen:
        raise ValueError("none of the requested systems is available")
    if arguments.reference is None:
        return chosen, None
    reference = _first_of(choose(arguments.reference, list(everything))[0], everything)
    first = {} if reference in chosen else {reference: everything[reference]}
    return {**first, **chosen}, reference


def _choose_available(arguments: argparse.Namespace, names: list[str]) -> list[str]:
    """Choose among the available systems; absent ones are reported elsewhere."""
    if arguments.systems is None:
        offered = {*map(system_of, _offered(arguments))}
        hidden = SYSTEMS.keys() - {*LISTED} - offered
        return [system for system in choose(None, names) if system not in hidden]
    chosen: list[str] = []
    for part in arguments.systems.split(","):
        with contextlib.suppress(ValueError):
            chosen += choose(part, names)
    return list(dict.fromkeys(chosen))


def _box_form(arguments: argparse.Namespace) -> inputs.BoxForm:
    return inputs.BoxForm(arguments.box_format, arguments.normalized, arguments.degrees)


def _options(arguments: argparse.Namespace, features: inputs.FeatureMap) -> Options:
    size, axes = arguments.output_size, len(features.size)
    if len(size) not in (1, axes):
        example, given = "x".join(["7"] * axes), "x".join(map(str, size))
        raise ValueError(f"--output-size {given}: of a {features.kind} it is 7 or {example}")
    bins = size * axes if len(size) == 1 else size
    return Options(bins, arguments.spatial_scale, arguments.sampling_ratio)


def _check_size(problem: Problem) -> None:
    """Limit the memory: one result of every group of systems is kept until the end."""
    values = math.prod(problem.pooled_shape)
    if values > _MAX_VALUES:
        raise ValueError(
            f"each result would hold {values:,} numbers, more than {_MAX_VALUES:,}: give fewer "
            "boxes, channels or bins"
        )


def _compare_all(
    arguments: argparse.Namespace,
    chosen: dict[str, Compute],
    reference: str | None,
    problem: Problem,
) -> list[PartComparison]:
    for part in arguments.gradients:
        _check_available(part, chosen, problem.is_volume)
    wanted = ["forward", *arguments.gradients]
    parts: list[PartComparison] = []
    done = itertools.count()
    with progress(len(wanted) * len(chosen)) as tell:
        for part in wanted:
            comparison = compare(
                chosen,
                problem,
                part,
                reference=reference,
                rtol=arguments.rtol,
                atol=arguments.atol,
                tell=lambda name: tell(f"comparing {name}", next(done)),
            )
            if comparison is None:
                raise ValueError(f"--gradients {part}: no selected system has this gradient")
            parts.append(comparison)
    return parts


def _check_available(part: str, chosen: Mapping[str, Compute], is_volume: bool) -> None:
    """Check, before the work, that a system has a gradient, by a call on the smallest input."""
    axes = 3 if is_volume else 2
    box = np.array([[0, *[0] * axes, *[1] * axes]], np.float32)
    features = np.ones((1, 1, *[2] * axes), np.float32)
    smallest = Problem(features, box, Options((1,) * axes, 1.0, 1))
    for compute in chosen.values():
        try:
            compute(smallest, part)
        except Unavailable:
            continue
        except Exception:  # noqa: BLE001 - it has the gradient; the error is reported later
            return
        return
    raise ValueError(f"--gradients {part}: no selected system has this gradient")


def _write_files(arguments: argparse.Namespace, findings: Findings) -> None:
    """Create all contents before writing, so that an error leaves no file behind."""
    made: dict[str, bytes] = {}
    if arguments.save is not None:
        from roipool.tools.compare import figure

        picture = io.BytesIO()
        title = f"{printable(Path(findings.features.name).name)}: {_described(findings)}"
        drawing = figure.draw(findings.forward, findings.features, findings.boxes.rois, title)
        figure.save(drawing, picture, Path(arguments.save).suffix.lower()[1:])
        made[arguments.save] = picture.getvalue()
    if arguments.html is not None:
        from roipool.tools.compare import page

        made[arguments.html] = page.as_html(findings, _described(findings)).encode()
    if arguments.json not in (None, *files.STDOUT):
        made[arguments.json] = json_output.as_json(findings, _about(arguments, findings)).encode(
            "ascii"
        )
    for path, content in made.items():
        with files.replacing(path) as stream:
            stream.write(content)


def _about(arguments: argparse.Namespace, findings: Findings) -> dict[str, Any]:
    options = findings.problem.options
    return {
        "output_size": list(options.output_size),
        "spatial_scale": options.spatial_scale,
        "sampling_ratio": options.sampling_ratio,
        "rtol": arguments.rtol,
        "atol": arguments.atol,
        "threads": roipool.get_num_threads(),
    }


def slips(arguments: argparse.Namespace, problem: Problem) -> list[str]:
    """Return notes on arguments that look like mistakes."""
    notes = []
    scale = arguments.spatial_scale
    if scale > 2 and scale == int(scale):
        notes.append(
            f"--spatial-scale {scale:g} enlarges boxes; a stride of {scale:g} is 1/{scale:g}"
        )
    coordinates = problem.rois[:, 1:5] if problem.rotated else problem.rois[:, 1:]
    is_small = coordinates.size and np.nanmax(np.abs(coordinates), initial=0.0) <= 1.0
    if is_small and not (arguments.normalized or arguments.box_format == "tensorflow"):
        notes.append(
            "every coordinate of the boxes is at most 1; fractions need --normalized, and "
            "TensorFlow's --box-format tensorflow"
        )
    is_of_tensorflow = arguments.box_format == "yxyx" or "tensorflow" in str(arguments.systems)
    if arguments.normalized and is_of_tensorflow:
        notes.append(
            "--normalized is for fractions of height and width; those of TensorFlow are of "
            "height - 1 and width - 1: --box-format tensorflow"
        )
    return notes


def notes_on_input(findings: Findings) -> list[str]:
    """Return notes on a picture and boxes from files that look like mistakes."""
    features = findings.features
    more = [f"{features.name} has several pictures: the first is read"] * features.is_first
    return [*more, *_notes_on_boxes(findings)]


def _notes_on_boxes(findings: Findings) -> list[str]:
    problem, size = findings.problem, findings.features.size
    if problem.rotated or not len(problem.rois) or findings.boxes.is_chosen:
        return []
    first, last = np.split(problem.rois[:, 1:].astype(np.float64), 2, axis=1)
    finite = np.isfinite(problem.rois[:, 1:]).all(axis=1)
    with np.errstate(invalid="ignore"):
        outside = finite & ((np.maximum(first, last) <= 0) | (np.minimum(first, last) >= size)).any(
            axis=1
        )
        reversed_ = finite & (last < first).any(axis=1)
        beyond = finite & ~reversed_ & (last > np.array(size) * 1.05).any(axis=1)
        # Width and height that would keep all of these boxes on the picture.
        is_xywh = reversed_.any() and (first + last <= np.array(size) * 1.05)[finite].all()
    total = len(problem.rois)
    kinds = (
        (~finite, "not finite", ""),
        (reversed_, "reversed: the end is before the start", "; --box-format xywh?"),
        (outside, f"outside the {findings.features.kind}", ""),
        (beyond & ~outside, f"partly far beyond the {findings.features.kind}", ""),
    )
    return [
        f"{which.sum()} of {total} boxes {'is' if which.sum() == 1 else 'are'} {words}"
        + (hint if is_xywh and not findings.problem.is_volume else "")
        for which, words, hint in kinds
        if which.any()
    ]


def _described(findings: Findings) -> str:
    options = findings.problem.options
    size = " x ".join(map(str, options.output_size))
    ratio = options.sampling_ratio or "adaptive"
    return f"output {size}, scale {options.spatial_scale:.6g}, sampling {ratio}"


def _verdict(arguments: argparse.Namespace, findings: Findings) -> tuple[list[str], int]:
    """Evaluate --check, if given; return lines to print and the exit status."""
    if not arguments.check:
        return [], 0
    lines = [f"  {name}: did not run" for name in findings.absent]
    for comparison in findings.parts:
        for result in json_output.outside_tolerance(comparison):
            where = "" if comparison.part == "forward" else f", gradient of {comparison.part}"
            apart = None if result.error else comparison.to_reference(result)
            what = f"greatest |diff| {apart.greatest:.3g}" if apart else "did not run"
            lines.append(f"  {result.name}{where}: {what}")
    if not lines and len(findings.boxes.rois) == 0:
        raise ValueError("--check: there are no boxes, so nothing was compared")
    ran = [sum(not result.error for result in part.results) for part in findings.parts]
    if not lines and min(ran) < 2:
        raise ValueError("--check: fewer than two systems ran, so nothing was compared")
    limit = f"{arguments.atol:g} + {arguments.rtol:g} * |{findings.forward.reference}|"
    if not lines:
        return [f"check passed: every difference is within {limit}"], 0
    count = len(findings.absent) + sum(len(part.results) for part in findings.parts)
    return [f"check failed: {len(lines)} of {count} not within {limit}:", *lines], 1
