#!/usr/bin/env bash
# Runs the emulated GPU cases with kernels built under AddressSanitizer and UBSan:
#   tests/emulator/sanitize.sh [pytest arguments]
# ROIPOOL_SANITIZE_CASES chooses cases as -k does.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

compiler=${CXX:-g++}
export ROIPOOL_EMULATOR_SANITIZE=address,undefined
# Python itself is not built with the sanitizers: their libraries have to be there before it.
LD_PRELOAD="$("$compiler" -print-file-name=libasan.so) $("$compiler" -print-file-name=libubsan.so)"
export LD_PRELOAD
export ASAN_OPTIONS=detect_leaks=0:detect_stack_use_after_return=0
export UBSAN_OPTIONS=print_stacktrace=1
if [ "$#" -eq 0 ]; then
  set -- tests/test_cuda.py tests/test_oracle.py tests/test_gradients.py tests/test_goldens.py tests/test_storage.py
fi
exec pytest -q -p no:cacheprovider -k "${ROIPOOL_SANITIZE_CASES:-emulator}" "$@"
