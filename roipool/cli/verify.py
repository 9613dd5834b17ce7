"""``roipool verify``: prove that this installation computes right on this machine."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Any

import roipool
from roipool import _system_info

__all__ = ["add_parser", "report", "run", "what_to_verify"]

_BACKENDS = ("cpu", "cuda", "all")
_SHOWN = 5  # problems of a group
_FIRST_PASS = "cuda: other types, NHWC, released programs: --everything"

_DESCRIPTION = """\
Prove in less than a minute that this installation computes right on this
machine: against the answers of released implementations, against the oracle and
its own transposes on awkward input in every type, layout and instruction set,
on random calls over the whole space of arguments, and again with other numbers
of threads.
"error 0.31 of allowed" is the greatest error as a part of its tolerance, a few
roundings. On a GPU, where each type, layout and definition is compiled, a first
pass verifies every operation in float32 and NCHW; --everything the rest.

With --implementation: whether somebody else's function computes what
--semantics names, and which rule it breaks if it does not."""

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

exit status: 0 all is right; 1 something is wrong; 2 bad input, or a backend
that is not there."""


def add_parser(subparsers: Any) -> None:
    """Add the ``verify`` command to the program's subparsers."""
    from roipool.cli import conformance

    parser = subparsers.add_parser(
        "verify",
        help="prove that this installation computes right",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--backend",
        choices=_BACKENDS,
        help="what to verify: by default the CPU, and the GPU if there is one",
    )
    parser.add_argument(
        "--everything",
        action="store_true",
        help="on a GPU: every type and layout, too, and the answers of released implementations, "
        "which takes a minute to compile; the CPU has no less without it",
    )
    parser.add_argument("--seed", type=_seed, default=0, help="of what is drawn (default 0)")
    conformance.add_arguments(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Carry out the command.

    Parameters
    ----------
    arguments : argparse.Namespace
        What the parser made of the command line.

    Returns
    -------
    int
        1 if anything is wrong, else 0.

    Raises
    ------
    ValueError
        If the GPU is asked for and there is none.
    """
    from roipool.cli import conformance
    from roipool.verification import groups

    if conformance.is_asked(arguments):
        return conformance.run(arguments)
    backends, left_out = what_to_verify(arguments.backend or "all")
    print(f"roipool {roipool.__version__}, seed {arguments.seed}")
    if "cuda" in backends and not arguments.everything:
        left_out.append(_FIRST_PASS)
    for reason in left_out:
        print(f"not checked: {reason}")
    tallies = groups.verify(backends, arguments.seed, everything=arguments.everything)
    return report(tallies, backends)


def report(tallies: Iterable[Any], backends: Sequence[str]) -> int:
    """Print what groups found, each when it is done, and a verdict.

    Parameters
    ----------
    tallies : iterable of Tally
        What `roipool.verification.groups.verify` yields.
    backends : sequence of str
        Where it was computed.

    Returns
    -------
    int
        1 if anything is wrong, else 0.
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


def what_to_verify(asked: str) -> tuple[list[str], list[str]]:
    """Return what this installation can verify, and why the rest is left out.

    Parameters
    ----------
    asked : {"cpu", "cuda", "all"}
        The backends asked for.

    Returns
    -------
    backends : list of str
        Those that are there.
    left_out : list of str
        One line for each backend and type that is not.

    Raises
    ------
    ValueError
        If the GPU is asked for and there is none.
    """
    from roipool.verification.device import device

    no_gpu = None if asked == "cpu" else _system_info.gpu_facts()["no_gpu"]
    if asked == "cuda" and no_gpu:
        raise ValueError(f"--backend cuda: {no_gpu}")
    backends = ["cpu", "cuda"] if asked == "all" else [asked]
    left_out = []
    if asked == "all" and no_gpu:
        backends.remove("cuda")
        left_out.append(f"cuda: {no_gpu}")
    left_out += [
        f"bfloat16 on {name}: needs ml_dtypes{' and CuPy 14' if name == 'cuda' else ''}"
        for name in backends
        if "bfloat16" not in device(name).types
    ]
    return backends, left_out


def _print(tally: Any) -> None:
    error = f"error {tally.worst:.2f} of allowed" if tally.worst else "all equal"
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
