#!/usr/bin/env bash
# Builds roipool for libFuzzer, under AddressSanitizer and UBSan, and runs fuzz.py:
#   tests/faults/fuzz.sh [options and files of libFuzzer]
# It needs clang, and for PYTHON (default python) Atheris, Cython, NumPy and setuptools. What it
# learns is added to tests/faults/corpus. SANITIZED: a folder for the build, which is kept.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
python=${PYTHON:-python}

work=${SANITIZED:-}
if [ -z "$work" ]; then
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
fi
flags="-fsanitize=address,undefined,fuzzer-no-link -fno-sanitize=vptr,function -g1"
flags+=" -fno-sanitize-recover=all -fno-omit-frame-pointer"
# One engine, without threads: the program repeats what its bytes say.
CC=clang CXX=clang++ CFLAGS=$flags CXXFLAGS=$flags LDFLAGS=-shared ROIPOOL_NO_OPENMP=1 \
  "$python" setup.py -q build --build-base "$work" >"$work/log" 2>&1 || {
  cat "$work/log" >&2
  exit 1
}
PYTHONPATH=$(echo "$work"/lib*)
export PYTHONPATH
export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1
preload=$("$python" -c 'import atheris; print(atheris.path())')/asan_with_fuzzer.so
mkdir -p tests/faults/corpus
LD_PRELOAD=$preload "$python" -P tests/faults/fuzz.py tests/faults/corpus "$@"
