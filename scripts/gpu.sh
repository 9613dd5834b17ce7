#!/usr/bin/env bash
# Proves the CUDA backend on a machine with an NVIDIA GPU, and measures it. Needs no network.
#
#   scripts/gpu.sh [--seconds N] [FOLDER [tests|calls|bench|sanitize|everything|all]]
#
# --seconds N ends after N seconds. Steps come in the order of their worth, as below; the rows of
# docs/gpu.md that are wanted most are measured before the others. A step has no more time than is
# left, and is left out where little is; steps.json says which.
#
# tests:      the tests marked gpu, those of JAX first, and "roipool verify --backend cuda"
# calls:      times whole calls and whole detectors beside torchvision's, where it is installed, and
#             the first calls of a process; counts what kernels do, where Nsight Compute (ncu) is
# bench:      times kernels beside torchvision's CUDA operators, where it is installed
# sanitize:   runs every kernel on small inputs under compute-sanitizer's memcheck and racecheck
# everything: "roipool verify --backend cuda --everything"
# all:        all of it, in this order (the default)
#
# Each stage builds roipool first, takes ten minutes at most, and writes to FOLDER, by default
# benchmarks/results-<device>-<date>: about.json names the device and the versions, steps.json has
# the status, seconds and time limit of each step. A step that fails does not stop the others, but the
# script then fails at its end.
# PYTHON names the interpreter (default python3); it needs setuptools, Cython, NumPy and CuPy, and
# pytest for the tests. Tests that need more (ml_dtypes) are skipped where it is missing.
# BENCH_OPTIONS is added to the options of benchmarks/bench.py, first_call.py and kernels_once.py,
# CALLS_OPTIONS to those of gpu_calls.py, DETECTOR_OPTIONS to those of torchvision_models.py.
#
# On an H200 beside 16 cores (2026-11-26) steps took so many seconds: build 20 to 30, verify 40, tests
# 130, exercise 30, memcheck and racecheck 60 to 80 each, verify-everything 75, and of bench 12 for each
# operation of a workload, mostly of the host; jax, calls, detectors, first-call and profile have not run
# on a GPU, and may take 60, 30, 60, 40 and 60. tests/emulator/rehearse.sh runs all stages without a GPU.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly PYTHON=${PYTHON:-python3}
readonly MODULES=(setuptools Cython numpy cupy)
readonly CUDA=${CUDA_HOME:-/usr/local/cuda} # the toolkit's programs, if not on PATH
# What Nsight Compute counts of each kernel.
readonly COUNTERS=gpu__time_duration.sum,smsp__inst_executed.sum,lts__t_bytes.sum,dram__bytes.sum,\
l1tex__t_bytes_pipe_lsu_mem_local_op_ld.sum,l1tex__t_bytes_pipe_lsu_mem_local_op_st.sum,\
smsp__issue_active.avg.pct_of_peak_sustained_active,sm__warps_active.avg.pct_of_peak_sustained_active,\
lts__t_bytes.avg.pct_of_peak_sustained_elapsed,launch__registers_per_thread
# Seconds below which a step is not begun.
readonly LEAST=20
failures=0
steps=""
budget=0 # seconds for everything; 0: no limit

fail() {
  printf 'gpu.sh: error: %s\n' "$1" >&2
  exit 2
}

lacks() { ! "$PYTHON" -c "import importlib.util as u, sys; sys.exit(u.find_spec('$1') is None)"; }

# Everything that a stage needs and that is not there, in one line.
requirements() {
  local missing=()
  command -v "$PYTHON" >/dev/null || fail "there is no $PYTHON; set PYTHON to an interpreter"
  command -v nvidia-smi >/dev/null || missing+=("an NVIDIA driver (nvidia-smi)")
  command -v "${CXX:-g++}" >/dev/null || missing+=("a C++ compiler (${CXX:-g++})")
  for module in "$@"; do
    if lacks "$module"; then missing+=("Python's $module"); fi
  done
  "$PYTHON" -c 'import setuptools, sys; sys.exit(int(setuptools.__version__.split(".")[0]) < 77)' \
    2>/dev/null || missing+=("setuptools 77 or later")
  if [ "${#missing[@]}" -gt 0 ]; then
    fail "missing: $(printf '%s, ' "${missing[@]}" | sed 's/, $//')"
  fi
}

# step NAME SECONDS COMMAND...: runs a command with a time limit; its output goes to NAME.log too.
step() {
  local name=$1 limit=$2 status=0 begin=$SECONDS left
  shift 2
  if [ "$budget" -gt 0 ]; then
    left=$((budget - SECONDS))
    if [ "$left" -lt "$LEAST" ]; then
      printf 'gpu.sh: %s is left out: %s of %s s are left\n' "$name" "$left" "$budget"
      leave_out "$name" "$limit"
      return 0
    fi
    if [ "$left" -lt "$limit" ]; then limit=$left; fi
  fi
  printf '\n== %s\n' "$name"
  timeout "$limit" "$@" 2>&1 | tee "$folder/$name.log" || status=${PIPESTATUS[0]}
  if [ "$status" -eq 124 ]; then printf 'gpu.sh: %s took more than %s s\n' "$name" "$limit"; fi
  record "$name" "$status" $((SECONDS - begin)) "$limit"
  return "$status"
}

record() {
  if [ "$2" -ne 0 ]; then
    failures=$((failures + 1))
    printf 'gpu.sh: %s failed with status %s\n' "$1" "$2" >&2
  fi
  note "\"status\": $2, \"seconds\": $3, \"limit\": $4" "$1"
}

leave_out() { note "\"status\": null, \"seconds\": 0, \"limit\": $2" "$1"; }

# Adds a step to steps.json.
note() {
  steps+="${steps:+,}{\"step\": \"$2\", $1}"
  printf '[%s]\n' "$steps" >"$folder/steps.json"
}

about() {
  "$PYTHON" - "$(git describe --always --dirty --abbrev=40 2>/dev/null || echo unknown)" <<'PYTHON'
import importlib.metadata, json, sys
from datetime import UTC, datetime
from roipool.cli.info import facts

def version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None

peers = ("torch", "torchvision", "mmcv")
print(json.dumps({
    "commit": sys.argv[1],
    "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
    **facts(),
    **{name: version(name) for name in peers},
}, indent=2))
PYTHON
}

build() {
  local no_gpu
  step build 120 "$PYTHON" -m pip install --no-build-isolation --no-deps -e . ||
    fail "the build failed: see $folder/build.log"
  about >"$folder/about.json"
  no_gpu=$("$PYTHON" -c 'from roipool.cli.info import facts; print(facts()["no_gpu"] or "")')
  [ -z "$no_gpu" ] || fail "no GPU: $no_gpu"
  nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm --format=csv
}

run_tests() {
  local workers=() folders=(tests/ops tests/compat tests/cuda tests/verification)
  # Without a device the tests must fail, not be skipped.
  local pytest=("$PYTHON" -m pytest -q -m gpu -W default --continue-on-collection-errors
    -p no:cacheprovider --durations=10)
  folders+=(tests/cli/test_volumes.py tests/front_ends/test_random_calls.py)
  if ! lacks xdist; then workers=(-n 12); fi
  if ! lacks torch; then folders+=(tests/front_ends/test_torch_gpu.py); fi
  # JAX would take three quarters of the GPU's memory.
  if ! lacks jax; then
    step jax 120 env XLA_PYTHON_CLIENT_PREALLOCATE=false "${pytest[@]}" \
      tests/front_ends/test_jax_gpu.py || true
  fi
  step tests 260 "${pytest[@]}" "${workers[@]}" "${folders[@]}" || true
  step verify 80 "$PYTHON" -m roipool verify --backend cuda || true
}

run_everything() {
  step verify-everything 460 "$PYTHON" -m roipool verify --backend cuda --everything || true
}

run_sanitizer() {
  local tool sanitizer
  sanitizer=$(command -v compute-sanitizer || echo "$CUDA/bin/compute-sanitizer")
  if [ ! -x "$sanitizer" ]; then
    printf 'gpu.sh: missing: compute-sanitizer, of the CUDA toolkit\n' >&2
    record sanitizer 127 0 0
    return 0
  fi
  # Several processes compile into CuPy's cache first, so that the sanitizer's time goes to kernels.
  step exercise 120 "$PYTHON" scripts/exercise_kernels.py --processes 8 || return 0
  for tool in memcheck racecheck; do
    step "$tool" 170 "$sanitizer" --tool "$tool" --report-api-errors no --error-exitcode 9 \
      "$PYTHON" scripts/exercise_kernels.py || true
  done
}

# Whole calls on tensors, with what the host takes for them, and whole detectors.
run_calls() {
  if lacks torchvision; then return 0; fi
  # shellcheck disable=SC2086 # several options
  step calls 90 "$PYTHON" benchmarks/gpu_calls.py ${CALLS_OPTIONS:-} --json "$folder/calls.json" || true
  # shellcheck disable=SC2086 # several options
  step detectors 90 "$PYTHON" benchmarks/torchvision_models.py --device cuda --size 800 --rounds 10 \
    ${DETECTOR_OPTIONS:-} --json "$folder/detectors.json" || true
}

run_first_call() {
  # shellcheck disable=SC2086 # several options
  step first-call 90 "$PYTHON" benchmarks/first_call.py ${BENCH_OPTIONS:-} \
    --json "$folder/first-call.json" || true
}

run_profile() {
  local ncu
  ncu=$(command -v ncu || echo "$CUDA/bin/ncu")
  if [ ! -x "$ncu" ]; then
    printf 'gpu.sh: profile is left out: there is no ncu, of the CUDA toolkit\n'
    leave_out profile 120
    return 0
  fi
  # shellcheck disable=SC2086 # several options
  step profile 120 "$ncu" --clock-control none -k 'regex:average|plan_|unpool|maximum|roi_' \
    --metrics "$COUNTERS" --csv --log-file "$folder/profile.csv" \
    "$PYTHON" benchmarks/kernels_once.py ${BENCH_OPTIONS:-} || true
}

# The rows of docs/gpu.md that are wanted most, where there may be no time for all.
run_first_bench() {
  if [ "$budget" -eq 0 ]; then return 0; fi
  local bench=("$PYTHON" benchmarks/bench.py --backend cuda --repeat 3)
  # shellcheck disable=SC2206 # several options
  bench+=(${BENCH_OPTIONS:-})
  step bench-first 120 "${bench[@]}" --workload W3b,W1a,W4a,W3a --peers torchvision \
    --json "$folder/bench-first.json" || true
}

run_bench() {
  local bench=("$PYTHON" benchmarks/bench.py --backend cuda --repeat 5)
  # shellcheck disable=SC2206 # several options
  bench+=(${BENCH_OPTIONS:-})
  step bench 300 "${bench[@]}" --workload 'W*' --peers torchvision,mmcv --json "$folder/bench.json" || true
  step bench-float16 70 "${bench[@]}" --workload W1a,W3a,W5a --dtype float16 --peers torchvision \
    --json "$folder/bench-float16.json" || true
}

main() {
  if [ "${1:-}" = --seconds ]; then
    [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || fail "--seconds must be a whole number of seconds, not '${2:-}'"
    [ "$2" -ge $((2 * LEAST)) ] || fail "--seconds must be at least $((2 * LEAST)), not '$2'"
    budget=$2
    shift 2
  fi
  local stage=${2:-all} device
  local modules=("${MODULES[@]}")
  case $stage in
    tests | all) modules+=(pytest) ;;
    calls | bench | sanitize | everything) ;;
    *) fail "the stage must be tests, calls, bench, sanitize, everything or all, not '$stage'" ;;
  esac
  requirements "${modules[@]}"
  device=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1 | tr -c '[:alnum:]\n' -)
  [ -n "$device" ] || fail "nvidia-smi finds no GPU"
  folder=${1:-benchmarks/results-$device-$(date -u +%F)}
  mkdir -p "$folder"
  build
  case $stage in tests | all) run_tests ;; esac
  case $stage in calls | all) run_calls ;; esac
  case $stage in bench | all) run_first_bench ;; esac
  case $stage in
    calls | all)
      run_first_call
      run_profile
      ;;
  esac
  case $stage in bench | all) run_bench ;; esac
  case $stage in sanitize | all) run_sanitizer ;; esac
  case $stage in everything | all) run_everything ;; esac
  printf '\n%s: %s of the steps failed; %s\n' "$device" "$failures" "$folder/steps.json"
  [ "$failures" -eq 0 ]
}

main "$@"
