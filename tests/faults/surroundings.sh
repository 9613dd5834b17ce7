#!/usr/bin/env bash
# What the surroundings of roipool may lack, each for real:
#   tests/faults/surroundings.sh disk      results on a disk that is full (as root, Linux)
#   tests/faults/surroundings.sh tree      a build from a tree that cannot be written (as root, Linux)
#   tests/faults/surroundings.sh openmp    a build by a compiler that knows no OpenMP
# PYTHON names the interpreter (default python): with roipool's extra `cli` for a disk, with Cython,
# NumPy and setuptools for a build.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
python=${PYTHON:-python}
work=$(mktemp -d)
trap 'umount "$work/disk" 2>/dev/null || true; rm -rf "$work"' EXIT

fail() { echo "$1" >&2; exit 1; }

disk() {
  mkdir "$work/disk"
  mount -t tmpfs -o size=64k none "$work/disk"
  for option in save=figure.png html=page.html json=found.json; do
    name=$work/disk/${option#*=}
    echo old >"$name"
    head -c 100000 /dev/zero >"$work/disk/rest" 2>/dev/null || true
    status=0
    "$python" -P -m roipool compare "--${option%=*}" "$name" 2>"$work/said" || status=$?
    cat "$work/said"
    [ "$status" -eq 2 ] || fail "status $status"
    grep -q "^roipool: error: .*: No space left on device$" "$work/said" || fail "another error"
    [ "$(cat "$name")" = old ] || fail "the old file is gone"
    rm "$name" "$work/disk/rest"
    [ -z "$(ls -A "$work/disk")" ] || fail "something was left behind"
  done
}

copy_of_the_tree() { git archive --prefix=tree/ HEAD | tar -x -C "$work"; }

wheel() { "$@" "$python" -m pip wheel --quiet --no-deps --no-build-isolation -w "$work" "$work/tree"; }

tree() {
  copy_of_the_tree
  chmod -R a-w "$work/tree"
  wheel setpriv --bounding-set=-dac_override,-dac_read_search --inh-caps=-all --
  ls "$work"/*.whl
}

openmp() {
  copy_of_the_tree
  # shellcheck disable=SC2016 # of the program that is written
  printf '#!/bin/sh\ncase " $* " in *" -fopenmp "*) exit 1 ;; esac\nexec "%s" "$@"\n' "${CXX:-c++}" \
    >"$work/compiler"
  chmod +x "$work/compiler"
  CC=$work/compiler CXX=$work/compiler wheel env
  "$python" -m pip install --quiet --no-deps --target "$work/installed" "$work"/*.whl
  cd "$work"
  PYTHONPATH=$work/installed "$python" -P -W always -c '
import warnings
import numpy, roipool
with warnings.catch_warnings(record=True) as caught:
    for _ in range(3):
        roipool.roi_pool(numpy.ones((1, 1, 4, 4)), [[0, 0, 0, 3, 3]], 1)
print(*(one.message for one in caught))
assert len(caught) == 1 and "no OpenMP" in str(caught[0].message), caught
'
}

case "${1:-}" in
  disk | tree | openmp) "$1" ;;
  *) fail "one of disk, tree, openmp" ;;
esac
