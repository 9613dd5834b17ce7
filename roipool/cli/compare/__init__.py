"""``roipool compare``: run every system on the same boxes and show how they differ."""

from roipool.cli.compare.command import add_parser, run

__all__ = ["add_parser", "run"]
