"""Limits of threads set by other libraries."""

from __future__ import annotations

import pytest
from _support.run_python import run_python

from roipool import _cpu

pytest.importorskip("threadpoolctl", reason="threadpoolctl is not installed")


def test_limits_of_threadpoolctl() -> None:
    """They set OpenMP's number, which roipool uses until it has its own setting."""
    if not _cpu.has_openmp():
        pytest.skip("built without OpenMP")
    done = run_python(
        """
        import roipool
        from threadpoolctl import threadpool_limits

        counts = [roipool.get_num_threads()]
        with threadpool_limits(1):
            counts.append(roipool.get_num_threads())
        counts.append(roipool.get_num_threads())
        roipool.set_num_threads(2)
        with threadpool_limits(1):
            counts.append(roipool.get_num_threads())
        print(counts)
        """,
        OMP_NUM_THREADS="3",
    )
    assert done.stdout.strip() == "[3, 1, 3, 2]", done.stderr
