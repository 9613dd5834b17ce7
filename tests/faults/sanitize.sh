#!/usr/bin/env bash
# Builds roipool under a sanitizer and runs a command with it:
#   tests/faults/sanitize.sh address [command]   AddressSanitizer and UBSan, by GCC
#   tests/faults/sanitize.sh thread [command]    ThreadSanitizer, by GCC with LLVM's OpenMP
#   tests/faults/sanitize.sh pool [command]      ThreadSanitizer, by GCC, on a pool of threads
# Without a command: random calls, hostile arguments and the tests of races, threads and memory that
# the sanitizer can run. PYTHON names the interpreter (default python), which needs Cython, NumPy,
# setuptools and pytest; SANITIZED a folder for the build, which is kept (default: a
# temporary one). Exits 77, with one line that says why, where the compiler brings no sanitizers.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=tests/_support/sanitizers.sh
. tests/_support/sanitizers.sh
python=${PYTHON:-python}
kind=${1:-}
shift || true

export CC=gcc CXX=g++
case $kind in
address)
  flags="-fsanitize=address,undefined,float-cast-overflow -fno-sanitize-recover=all"
  preload=$(libraries_of gcc libasan.so libubsan.so)
  export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1
  export UBSAN_OPTIONS=print_stacktrace=1
  ;;
thread)
  flags="-fsanitize=thread"
  preload=$(libraries_of gcc libtsan.so)
  # GCC's OpenMP hides from ThreadSanitizer how threads wait for each other. LLVM's, which has the
  # same entry points, comes with a tool that tells it.
  folder=$(clang -print-resource-dir 2>/dev/null || true)/../..
  [ -e "$folder/libarcher.so" ] || leave_out "there is no libarcher.so (clang and libomp-dev)"
  preload+=$folder/libomp.so
  export OMP_TOOL_LIBRARIES=$folder/libarcher.so
  # Python and NumPy are not instrumented; of ours nothing is suppressed.
  export TSAN_OPTIONS="ignore_noninstrumented_modules=1 halt_on_error=1"
  ;;
pool)
  flags="-fsanitize=thread"
  preload=$(libraries_of gcc libtsan.so)
  export ROIPOOL_BUILD_TEAM=pool ROIPOOL_NUM_THREADS=${ROIPOOL_NUM_THREADS:-2}
  export OMP_THREAD_LIMIT=1  # see above: regions with one thread have no races
  export TSAN_OPTIONS="ignore_noninstrumented_modules=1 halt_on_error=1"
  ;;
*)
  echo "usage: tests/faults/sanitize.sh address|thread|pool [command]" >&2
  exit 2
  ;;
esac

work=${SANITIZED:-}
if [ -z "$work" ]; then
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
else
  mkdir -p "$work"
fi
flags+=" -fno-omit-frame-pointer -g1"
CFLAGS=$flags CXXFLAGS=$flags LDFLAGS=$flags \
  "$python" setup.py -q build --build-base "$work" >"$work/log" 2>&1 || {
  cat "$work/log" >&2
  exit 1
}
PYTHONPATH=$(echo "$work"/lib*)
export PYTHONPATH

run() { LD_PRELOAD=$preload "$@"; }
if [ "$#" -gt 0 ]; then
  run "$@"
  exit
fi

pytest=("$python" -P -m pytest -q -p no:cacheprovider -n 0)
run "$python" -P -m roipool.tools.random_calls --calls "${CALLS:-2000}" --seed 7 --jobs 1
if [ "$kind" = address ]; then
  run "$python" tests/faults/hostile_arguments.py --calls 500 --seed 7
  run "${pytest[@]}" tests/engines/test_races.py tests/engines/test_dense.py
else
  run "${pytest[@]}" tests/engines/test_races.py tests/engines/test_threads.py \
    -k "python_threads or same_bits or many"
fi
