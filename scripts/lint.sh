#!/usr/bin/env bash
# Runs every linter of the dependency group "lint" over the files that git has.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

ruff check .
ruff format --check .
mypy
cython-lint roipool/_cpu.pyx
mapfile -t scripts < <(git ls-files '*.sh' .ci/run)
shellcheck "${scripts[@]}"
mapfile -t kernels < <(git ls-files 'roipool/kernels/*.h' 'roipool/kernels/*.cpp' 'roipool/kernels/*.cu')
clang-format --dry-run -Werror "${kernels[@]}"
