#!/usr/bin/env bash
# Rehearses scripts/gpu.sh without a GPU, on the emulator, from an empty cache of kernels:
#   tests/emulator/rehearse.sh FOLDER [stage]
# All commands are the script's own. Stand-ins replace CuPy, the driver and compute-sanitizer, and no
# step has a time limit: a line "rehearsal: SECONDS" in its log says what processor time it took.
# Benchmarks pool two boxes of two channels, detectors run on the CPU with small pictures, and tests
# are collected, not run. PYTHON names the interpreter (default python3).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

programs=$(mktemp -d)
trap 'rm -rf "$programs"' EXIT

stand_in() { cat >"$programs/$1" && chmod +x "$programs/$1"; }

stand_in nvidia-smi <<<$'#!/bin/sh\necho emulator'
# Without the options, which start with a dash, and their values.
stand_in compute-sanitizer <<'PROGRAM'
#!/usr/bin/env bash
while [[ $1 == -* ]]; do case $1 in --csv) shift ;; *) shift 2 ;; esac; done
exec "$@"
PROGRAM
ln "$programs/compute-sanitizer" "$programs/ncu"
stand_in timeout <<'PROGRAM'
#!/usr/bin/env bash
TIMEFORMAT='rehearsal: %U + %S s of the processor'
shift
time "$@"
PROGRAM
mkdir "$programs/site" "$programs/kernels"
cat >"$programs/site/cupy.py" <<'PYTHON'
import sys

from _support.emulator import programs

sys.modules[__name__] = programs.install()
PYTHON

PATH="$programs:$PATH" PYTHONPATH="$programs/site:$PWD/tests" ROIPOOL_EMULATOR_CACHE="$programs/kernels" \
  BENCH_OPTIONS="--boxes 2 --channels 2" CALLS_OPTIONS="--device cpu" \
  DETECTOR_OPTIONS="--device cpu --size 64 --rounds 1" PYTEST_ADDOPTS="--collect-only -q" scripts/gpu.sh "$@"
