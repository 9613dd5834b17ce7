#!/usr/bin/env bash
# Starts roipool in a control group of its own, with and without a quota of processor time, and
# compares the number of threads. Linux with control groups of version 1 or 2, as root; PYTHON names
# the interpreter (default python), which has roipool.
set -euo pipefail
python=${PYTHON:-python}
mounts=/sys/fs/cgroup
if [ -d $mounts/cpu ]; then
  group=$mounts/cpu/roipool-quota-$$
  grant() { echo "$1" >"$group/cpu.cfs_quota_us"; }
  none=-1
else
  group=$mounts/roipool-quota-$$
  grant() { echo "$1 100000" >"$group/cpu.max"; }
  none=max
fi
mkdir "$group"
trap 'rmdir "$group"' EXIT

status=0
expect() { # THREADS QUOTA [VARIABLE=VALUE]
  grant "$2"
  # shellcheck disable=SC2016 # the inner shell, which enters the group, expands it
  found=$(env -u ROIPOOL_NUM_THREADS -u OMP_NUM_THREADS "${@:3}" \
    bash -c 'echo $$ >"$1/cgroup.procs" && exec "$2" -P -c "$3"' - "$group" "$python" \
    'import roipool; print(roipool.get_num_threads())')
  echo "quota $2 ${3:-}: $found"
  [ "$found" = "$1" ] || { echo "expected $1" >&2; status=1; }
}
expect "$(nproc)" $none
expect 1 100000
expect 1 40000
expect "$(nproc)" "$(nproc)00000"
expect 3 100000 OMP_NUM_THREADS=3
expect 5 100000 ROIPOOL_NUM_THREADS=5
exit $status
