"""benchmarks/arm64.py: what it reads from QEMU's log, and what it records of calls."""

from __future__ import annotations

import pytest
from arm64 import between_marks, recorded, task

LOG = b"""\
----------------
IN: _ZN7roipool8baseline9transposeEv
0x00400534:  52884800  movz     w0, #0x4240
0x00400538:  72a001e0  movk     w0, #0xf, lsl #16

Trace 0: 0x7f01 [0000/0000000000400534/0001/0200] _ZN7roipool8baseline9transposeEv
----------------
IN: mark
0x00400720:  d65f03c0  ret

Trace 0: 0x7f02 [0000/0000000000400720/0001/0200] mark
Trace 0: 0x7f01 [0000/0000000000400534/0001/0200] _ZN7roipool8baseline9transposeEv
Trace 0: 0x7f01 [0000/0000000000400534/0001/0200] _ZN7roipool8baseline9transposeEv
----------------
IN: memset
0x00400800:  d65f03c0  ret

Trace 0: 0x7f03 [0000/0000000000400800/0001/0200] memset
----------------
IN: _ZN7roipool8baseline9transposeEv
0x0040053c:  d65f03c0  ret

Trace 0: 0x7f01 [0000/000000000040053c/0001/0200] _ZN7roipool8baseline9transposeEv
Trace 0: 0x7f02 [0000/0000000000400720/0001/0200] mark
Trace 0: 0x7f01 [0000/000000000040053c/0001/0200] _ZN7roipool8baseline9transposeEv
Trace 0: 0x7f02 [0000/0000000000400720/0001/0200] mark
Trace 0: 0x7f02 [0000/0000000000400720/0001/0200] mark
"""


def test_only_the_engine_between_marks_counts() -> None:
    assert [*between_marks(LOG.splitlines(keepends=True))] == [5, 0]


@pytest.mark.parametrize(
    ("name", "backward", "operation", "outputs"),
    [
        ("tiny-call", False, "average", 7 * 7),
        ("tiny-call", True, "average_backward", 8 * 8),
        ("vgg16-pool", True, "unpool", 38 * 50),
    ],
)
def test_a_call_is_recorded(name: str, backward: bool, operation: str, outputs: int) -> None:
    call = recorded(task(name, {"boxes": 1, "channels": 1}, "float32", backward))
    (line,) = call.lines
    words = line.split()
    assert words[:6] == ["1", operation, "float32", "pooled", "NCHW", name_of(operation)]
    assert len(words) == 23 + 5  # of one box
    assert call.outputs == outputs


def name_of(operation: str) -> str:
    return "roi_pool" if operation == "unpool" else "roi_align"
