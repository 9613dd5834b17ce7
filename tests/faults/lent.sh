#!/usr/bin/env bash
# Lets the memory cache lend a result of 803 MB to the system in a control group of 1,200 MiB, then
# needs 1,000 MiB there: at once, after IDLE seconds (default 60), and in a forked process. Nothing
# may be killed, and later results must be the same. Linux with control groups of version 1 or 2, as
# root; PYTHON names the interpreter (default python), which has roipool.
set -euo pipefail
python=${PYTHON:-python}
mounts=/sys/fs/cgroup
limit=$((1200 << 20))
if [ -d $mounts/memory ]; then
  group=$mounts/memory/roipool-lent-$$
  file=memory.limit_in_bytes
else
  group=$mounts/roipool-lent-$$
  file=memory.max
fi
mkdir "$group"
trap 'rmdir "$group"' EXIT
echo $limit >"$group/$file"

program='
import os, sys, time
import numpy as np
import roipool
from roipool import _cpu

how, idle = sys.argv[1], float(sys.argv[2])
_cpu.set_lent_limit(2**30)
rng = np.random.default_rng(0)
maps = rng.standard_normal((1, 1024, 50, 76), dtype=np.float32)
rois = np.column_stack([np.zeros(1000), rng.uniform(0, 700, (1000, 4))])

def sums():
    pooled = roipool.roi_align(maps, rois, 14, 1 / 16, 2)
    return [float(pooled[k].sum()) for k in range(0, 1000, 100)]

def need_memory():
    start = time.perf_counter()
    other = np.empty(1000 << 20, np.uint8)
    other[::4096] = 1
    return time.perf_counter() - start

before = sums()
lent = _cpu.lent_bytes() >> 20
time.sleep(idle if how == "idle" else 0)
if how == "fork":
    start = time.perf_counter()
    child = os.fork()
    if child == 0:
        need_memory()
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == 0, status
    needed = time.perf_counter() - start
else:
    needed = need_memory()
assert sums() == before
assert lent > 700, lent
print(f"{how}: {lent} MiB lent, 1,000 MiB had in {needed * 1e3:.0f} ms, the same results after")
'

status=0
for how in "at once" idle fork; do
  # shellcheck disable=SC2016 # the inner shell, which enters the group, expands it
  bash -c 'echo $$ >"$1/cgroup.procs" && exec "$2" -P -c "$3" "$4" "$5"' - \
    "$group" "$python" "$program" "$how" "${IDLE:-60}" || status=1
done
exit $status
