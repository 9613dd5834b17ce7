#!/usr/bin/env bash
# Measures everything that benchmarks/README.md shows, and writes it there. It takes long.
# Leave the machine alone meanwhile. Needs roipool[peers]; what is not installed is listed as absent.
# Arguments go to the comparisons, for peers that live in other environments:
#
#   benchmarks/run.sh --peer-python mxnet=/path/to/python --peer-python paddle=/path/to/python
#
# PYTHON, THREADS, REPEAT and WORKLOADS are python, 1,2, 9 and W* unless set.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

python=${PYTHON:-python}
threads=${THREADS:-1,2}
most=${threads##*,}
repeat=${REPEAT:-9}
workloads=${WORKLOADS:-W*}
results=benchmarks/results
mkdir -p "$results"
export CUDA_VISIBLE_DEVICES=  # peers must not start a GPU

bench() { "$python" benchmarks/bench.py --repeat "$repeat" "$@"; }

bench --workload 'stress-*' --threads "$most" --peers torchvision --json "$results/stress.json"
bench --workload '*-call' --threads "$most" --peers torchvision --json "$results/calls.json"
bench --workload "$workloads" --threads "$most" --peers none --out-reuse --json "$results/out-reuse.json"
ROIPOOL_CACHE_MIB=0 bench --workload "$workloads" --threads "$most" --peers none \
  --json "$results/no-reuse.json"
# Large blocks of C's memory, which most peers use, are returned to the system, too.
ROIPOOL_CACHE_MIB=0 MALLOC_MMAP_THRESHOLD_=65536 MALLOC_TRIM_THRESHOLD_=0 bench \
  --workload W1a,W3a,W4a,W5a,W6a --threads "$most" "$@" --json "$results/new-pages.json"
bench --workload 'vgg16-pool-values,rfcn-*' --threads "$most" "$@" --json "$results/more.json"
bench --workload 'W1a,W4a,W6a' --threads "$most" --peers none --layout NCHW,NHWC \
  --dtype float16,bfloat16,float32,float64 --json "$results/dtypes.json"
# -P: what is installed, not what lies here.
sets=$("$python" -P -c 'from roipool.cli.info import facts; print(*facts()["instruction_sets"])')
for isa in $sets; do
  ROIPOOL_ISA=$isa bench --workload W1a --threads "$most" --peers none \
    --json "$results/isa-$isa.json"
done
"$python" benchmarks/scaling.py --repeat "$repeat" --threads "$threads" --json "$results/scaling.json"
"$python" benchmarks/busy_cores.py --threads "$threads" --json "$results/busy-cores.json"
bench --workload "$workloads" --threads "$threads" --memory "$@" \
  --json "$results/cpu.json" --plot "$results/cpu.png"
bench --workload W1a,W3a,W4a,W5a,W6a --threads 2 --peers torchvision,onnxruntime,tensorflow \
  "$@" --json "$results/readme.json"
if command -v valgrind >/dev/null; then
  "$python" benchmarks/traffic.py --json "$results/traffic.json"
  "$python" benchmarks/traffic.py --parts --json "$results/parts.json"
  "$python" benchmarks/many_cores.py --update
fi
"$python" benchmarks/tables.py
