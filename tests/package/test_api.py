"""The public API agrees with `api.txt`; to update: `python tests/package/api.py --write`."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from roipool._definitions import OPS, PYRAMID_OPS, VOLUME_OPS

SPEC = importlib.util.spec_from_file_location("api", Path(__file__).with_name("api.py"))
assert SPEC is not None
assert SPEC.loader is not None
api = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(api)


def test_signatures_are_the_committed_ones() -> None:
    assert api.difference() == ""


def test_all_operations_are_among_them() -> None:
    lines = api.FILE.read_text().splitlines()
    core = lines[: lines.index("# roipool.compat.caffe")]
    for op in (OPS | PYRAMID_OPS | VOLUME_OPS).values():
        for name in op.functions.values():
            assert any(line.startswith(f"{name}(") for line in core), name


def test_a_changed_default_is_noticed() -> None:
    def before(features: object, out: object = None) -> None: ...
    def after(features: object, out: object = 0) -> None: ...

    assert list(api.lines_of("f", before)) != list(api.lines_of("f", after))
