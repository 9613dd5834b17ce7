#!/usr/bin/env bash
# Runs a command in which emulated GPU kernels are built under AddressSanitizer and UBSan, and end
# it at their first error:
#   tests/emulator/sanitize.sh [command]
# Without a command, tests that run every kernel file in every type and layout: on every definition
# with hostile boxes, and ROI align on boxes of every kind. PYTHON names the interpreter for them
# (default python). Exits 77, with one line that says why, where the compiler brings no sanitizers.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=tests/_support/sanitizers.sh
. tests/_support/sanitizers.sh

compiler=${CXX:-g++}
compiler=${compiler%% *}
LD_PRELOAD=$(libraries_of "$compiler" libasan.so libubsan.so)
export LD_PRELOAD
export ROIPOOL_EMULATOR_SANITIZE=address,undefined,float-cast-overflow
export ASAN_OPTIONS=detect_leaks=0:detect_stack_use_after_return=0
export UBSAN_OPTIONS=print_stacktrace=1
# What pytest captures of file descriptors is lost when a sanitizer ends it, its report too.
export PYTEST_ADDOPTS="${PYTEST_ADDOPTS:-} --capture=sys"
if [ "$#" -eq 0 ]; then
  # Left out: what differs from other tests in values alone, or in how much is computed.
  few="not more_bins_along_depth and not sums_are_the_same and (not crowded or maps)"
  awkward="(inside or outside or boxes or finite or no or 17) and not pixels and not all and not many"
  # -P keeps the source tree from hiding what is installed.
  set -- "${PYTHON:-python}" -P -m pytest -q -n auto --everything -p no:cacheprovider \
    tests/emulator/test_emulator.py tests/cuda/test_{arrays,decisions,sizes}.py tests/ops/test_oracle.py \
    -k "(emulator or plans_fit and not 300) and $few and (not test_oracle or roi_align and ($awkward))"
fi
exec "$@"
