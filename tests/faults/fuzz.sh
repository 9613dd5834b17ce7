#!/usr/bin/env bash
# Builds roipool for libFuzzer, under AddressSanitizer and UBSan, and runs fuzz.py:
#   tests/faults/fuzz.sh [options of libFuzzer]
#   tests/faults/fuzz.sh FILE [options]     only what is in the file
# It needs clang, and for PYTHON (default python) Atheris, Cython, NumPy and setuptools. It starts
# from the inputs in corpus.zip; KEEP_CORPUS=1 adds those that reached something new. SANITIZED: a
# folder for the build, which is kept.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
python=${PYTHON:-python}

temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT
work=${SANITIZED:-$temporary/build}
mkdir -p "$work"
flags="-fsanitize=address,undefined,fuzzer-no-link -fno-sanitize=vptr,function -g1"
flags+=" -fno-sanitize-recover=all -fno-omit-frame-pointer"
# Without threads: the program repeats what its bytes say.
CC=clang CXX=clang++ CFLAGS=$flags CXXFLAGS=$flags LDFLAGS=-shared ROIPOOL_NO_OPENMP=1 \
  "$python" setup.py -q build --build-base "$work" >"$work/log" 2>&1 || {
  cat "$work/log" >&2
  exit 1
}
PYTHONPATH=$(echo "$work"/lib*)
export PYTHONPATH
export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1
preload=$("$python" -c 'import atheris; print(atheris.path())')/asan_with_fuzzer.so
corpus=tests/faults/corpus.zip
inputs=$temporary/inputs
mkdir "$inputs"
"$python" -m zipfile -e "$corpus" "$inputs"
fuzz() { LD_PRELOAD=$preload "$python" -P tests/faults/fuzz.py "$@"; }
if [ -f "${1:-}" ]; then
  fuzz "$@"
  exit
fi
fuzz "$inputs" "$@"
if [ -n "${KEEP_CORPUS:-}" ]; then
  (cd "$inputs" && "$python" -m zipfile -c "$temporary/corpus.zip" ./*)
  mv "$temporary/corpus.zip" "$corpus"
fi
