#!/usr/bin/env bash
# Runs random calls under valgrind's memcheck and counts the errors that roipool's module is in:
#   tests/faults/valgrind.sh [CALLS]     by default 60
# PYTHON names the interpreter (default python), which has roipool. Python's own small allocations
# go to malloc, where valgrind sees them; what Python and NumPy themselves do is not counted.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
log=$(mktemp)
trap 'rm -f "$log"' EXIT
PYTHONMALLOC=malloc valgrind --tool=memcheck --num-callers=30 --error-limit=no --log-file="$log" \
  "${PYTHON:-python}" -P -m roipool.tools.random_calls --jobs 1 --seed 11 --calls "${1:-60}"
# A report is a run of lines with a process number before them, up to an empty one.
awk -v RS='==[0-9]+== \n' '/(at|by) 0x/ { ++reports; if (/\/_cpu\.[^ ]*so/) { ++ours; print } }
  END { printf "%d reports, %d with roipool in them\n", reports, ours; exit ours > 0 }' "$log"
