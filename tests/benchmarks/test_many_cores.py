"""benchmarks/many_cores.py: what it reads from callgrind's profiles, and when it complains."""

from __future__ import annotations

import pytest
from many_cores import LEAST_PLANNING, Work, grown, work_of

PROFILE = """\
events: Ir
fn=execute
0 100
cfn=void roipool::write_box<float>(roipool::Request const&, roipool::Job const&, long long)
calls=3 0
0 300
cfn=roipool::write_entries_of(roipool::Call*, long long, int)
calls=3 0
0 310
cfn=roipool::run_task_of(roipool::Call*, long long, int)
calls=1 0
0 500
cfn=roipool::run_task_of(roipool::Call*, long long, int)
calls=1 0
0 600
totals: 1600
"""


def test_work_of_a_profile() -> None:
    assert work_of(PROFILE) == Work(total=1600, planning=300, tasks=1100)


def test_what_threads_share_gets_shorter() -> None:
    work = Work(total=10_100_000, planning=2 * LEAST_PLANNING, tasks=9_200_000)
    assert work.time(1) == work.total
    assert work.time(4) == 100_000 + LEAST_PLANNING + 2_300_000


@pytest.mark.parametrize(("now", "names"), [(1.0, []), (1.119, []), (1.13, ["a"])])
def test_more_work_than_before_is_named(now: float, names: list[str]) -> None:
    kept = [{"name": "a", "work": {"1": 1.0, "64": 1.1}}]
    found = [{"name": "a", "work": {"1": 1.0, "64": now}}, {"name": "new", "work": {"64": 9.0}}]
    assert grown(found, kept) == names
