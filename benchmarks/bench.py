"""Time roipool and other libraries on named workloads: the benchmark harness.

    python benchmarks/bench.py --help

benchmarks/README.md has results, and instructions for measuring on another machine.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence

from harness import command
from harness.devices import Device, open_device

from roipool.tools.libraries import LIBRARIES as PEERS
from roipool.tools.libraries import InstalledLibrary

__all__ = ["main"]

_DESCRIPTION = """\
Time roipool and other installed libraries, in turns, on boxes like a detector's proposals, and
check whether their results agree."""

_EPILOG = """\
workloads: --list shows them with their sizes.

In a round each library has one turn. The ratio is a library's median time over roipool's. The
memory's time is the time to move the compulsory bytes at the bandwidth that NumPy reaches in the
same run.

examples:
  python benchmarks/bench.py
  python benchmarks/bench.py --workload 'W*' --threads 1,2 --json bench.json --plot bench.png
  python benchmarks/bench.py --workload c4 --ops '*_backward' --peers torchvision
  python benchmarks/bench.py --peer-python mxnet=/opt/mxnet/bin/python

exit status: 0 done; 2 bad input."""


def main(
    argv: Sequence[str] | None = None,
    peers: Mapping[str, type[InstalledLibrary]] = PEERS,
    device: Callable[[str], Device] = open_device,
) -> int:
    """Run the program; return 0, or 2 for bad input.

    `peers` are the supported libraries, and `device` opens "cpu" or "cuda".
    """
    parser = _parser()
    arguments = parser.parse_args(argv)
    try:
        return command.run(arguments, peers, device)
    except (ValueError, OSError, ImportError, MemoryError) as error:
        parser.error(str(error))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bench.py",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--list", action="store_true", help="show the workloads and exit")
    _add_calls(parser)
    _add_peers(parser)
    _add_measurement(parser)
    return parser


def _add_calls(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--workload",
        default="fpn-box",
        metavar="A,B,...",
        help="names, codes or patterns, such as W1a, 'W*' or 'stress-*' (default: fpn-box)",
    )
    add(
        "--ops",
        default="*",
        metavar="A,B,...",
        help="restrict to these operations, such as roi_align or '*_backward'",
    )
    add(
        "--dtype",
        type=_listed,
        default=["float32"],
        metavar="A,B,...",
        help="float16, bfloat16, float32, float64 (default: float32)",
    )
    add(
        "--layout",
        type=_listed,
        metavar="A,B",
        help="NCHW, NHWC (default: NHWC for crop_and_resize, otherwise NCHW)",
    )
    add(
        "--threads",
        type=_counts,
        metavar="1,2,...",
        help="threads of each library (default: as roipool)",
    )
    add("--backend", choices=("cpu", "cuda"), default="cpu", help="default: cpu")


def _add_peers(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--peers",
        default="auto",
        metavar="auto|none|A,B,...",
        help="the libraries to compare with; auto: all, with missing ones listed as absent",
    )
    add(
        "--peer-python",
        type=_peer_python,
        action="append",
        default=[],
        metavar="PEER=FILE",
        help="run this library with the Python of another environment; repeatable",
    )


def _add_measurement(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--out-reuse", action="store_true", help="pass roipool the same out= in every call")
    add("--repeat", type=_count, default=9, metavar="N", help="rounds (default: 9)")
    add("--boxes", type=_count, metavar="N", help="boxes per image, instead of the workload's")
    add("--channels", type=_count, metavar="N", help="channels, instead of the workload's")
    add("--memory", action="store_true", help="measure roipool's peak memory, in a fresh process")
    add("--json", metavar="FILE", help="write every number as JSON; - prints it instead of tables")
    add("--plot", metavar="FILE.png", help="draw the ratios")


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _count(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return int(text)


def _counts(text: str) -> list[int]:
    return [_count(part) for part in _listed(text) or [text]]


def _peer_python(text: str) -> tuple[str, str]:
    name, equals, path = text.partition("=")
    if not (name and equals and path):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form mxnet=/path/to/python")
    return name.strip(), path


if __name__ == "__main__":
    sys.exit(main())
