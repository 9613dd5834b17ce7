"""``roipool verify``: check that this installation computes correctly on this machine."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Any

import roipool
from roipool import _system_info

__all__ = ["add_parser", "available_backends", "report", "run"]

_BACKENDS = ("cpu", "cuda", "all")
_SHOWN = 5  # problems shown of a group
_FIRST_PASS = "cuda: other types, NHWC, released programs: --everything"

_DESCRIPTION = """\
Check in less than a minute that this installation computes correctly on this
machine. Results are compared with stored results of released libraries, with a
slow reference implementation (the oracle) and the adjoint on edge cases in
every type, layout and instruction set, with the oracle on random calls, and
with other numbers of threads.
"error 0.31 x tolerance" is the largest error relative to its tolerance, which
allows a few roundings. On a GPU, where each type, layout and definition must be
compiled, only float32 and NCHW are verified; --everything verifies the rest.

With --implementation: check whether another implementation computes what
--semantics names, and which rule it breaks if not."""

_EPILOG = """\
examples:
  roipool verify
  roipool verify --backend cuda --everything
  roipool verify --implementation mypackage.ops:roi_align \\
      --semantics torchvision.roi_align
  roipool verify --implementation torchvision.ops:roi_align --arrays torch \\
      --semantics torchvision.roi_align --backward autograd \\
      --dtype float32,float64 --without non-finite-boxes --junit conformance.xml
  roipool verify --implementation mxnet --python old/bin/python \\
      --semantics mxnet.ROIPooling

exit status: 0 all results are right; 1 some are wrong; 2 bad input, or a
missing backend."""


def add_parser(subparsers: Any) -> None:
    """Add the ``verify`` command to the program's subparsers."""
    from roipool.cli import conformance

    parser = subparsers.add_parser(
        "verify",
        help="check that this installation computes correctly, or that another implementation does",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--backend",
        choices=_BACKENDS,
        help="the backend to verify: by default the CPU, and the GPU if there is one",
    )
    parser.add_argument(
        "--everything",
        action="store_true",
        help="on a GPU, also verify every type and layout, and the results of released "
        "libraries, which takes a minute to compile; no effect on the CPU",
    )
    parser.add_argument(
        "--seed", type=_seed, default=0, help="seed of the random calls (default 0)"
    )
    conformance.add_arguments(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command.

    Returns
    -------
    int
        1 if any result is wrong, else 0.

    Raises
    ------
    ValueError
        If a GPU is requested and there is none.
    """
    from roipool.cli import conformance
    from roipool.verification import groups

    if conformance.is_requested(arguments):
        return conformance.run(arguments)
    backends, left_out = available_backends(arguments.backend or "all")
    print(f"roipool {roipool.__version__}, seed {arguments.seed}")
    if "cuda" in backends and not arguments.everything:
        left_out.append(_FIRST_PASS)
    for reason in left_out:
        print(f"not checked: {reason}")
    tallies = groups.verify(backends, arguments.seed, everything=arguments.everything)
    return report(tallies, backends)


def report(tallies: Iterable[Any], backends: Sequence[str]) -> int:
    """Print each tally as soon as it is complete, and a verdict.

    Returns
    -------
    int
        1 if any result is wrong, else 0.
    """
    wrong, groups, count = 0, 0, 0
    for tally in tallies:
        groups += 1
        count += tally.count
        wrong += bool(tally.problems)
        _print(tally)
    if wrong:
        print(f"FAILED: {wrong} of {groups} groups are wrong on {' and '.join(backends)}")
        return 1
    print(f"verified: {' and '.join(backends)}, {count:,} numbers in {groups} groups")
    return 0


def available_backends(requested: str) -> tuple[list[str], list[str]]:
    """Return the backends that can be verified, and the reasons for skipping others.

    Returns
    -------
    left_out : list of str
        One line for each backend and type that is not available.

    Raises
    ------
    ValueError
        If a GPU is requested and there is none.
    """
    from roipool.verification.device import device

    no_gpu = None if requested == "cpu" else _system_info.gpu_facts()["no_gpu"]
    if requested == "cuda" and no_gpu:
        raise ValueError(f"--backend cuda: {no_gpu}")
    backends = ["cpu", "cuda"] if requested == "all" else [requested]
    left_out = []
    if requested == "all" and no_gpu:
        backends.remove("cuda")
        left_out.append(f"cuda: {no_gpu}")
    left_out += [
        f"bfloat16 on {name}: needs ml_dtypes{' and CuPy 14' if name == 'cuda' else ''}"
        for name in backends
        if "bfloat16" not in device(name).types
    ]
    return backends, left_out


def _print(tally: Any) -> None:
    error = f"error {tally.worst:.2f} x tolerance" if tally.worst else "all equal"
    verdict = "WRONG" if tally.problems else "ok"
    print(f"{tally.name:<32} {tally.count:>10,} numbers  {error:<22} {verdict}", flush=True)
    for problem in tally.problems[:_SHOWN]:
        print(f"    {problem}")
    if len(tally.problems) > _SHOWN:
        print(f"    and {len(tally.problems) - _SHOWN} more")


def _seed(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 0 or more")
    return int(text)
