#!/usr/bin/env bash
# Proves a commit in depth, in some forty minutes on two processors: every night, and before a
# release, beyond what `.ci/run` checks of each commit. Builds the documentation; compares
# 9,000 random calls with the oracle and one another, the CUDA kernels' registers, the engine's
# instructions and the work for many threads with the committed tables; runs all tests with those
# that README's command leaves out, the kernels on the emulator under sanitizers, all tests and random
# calls of the front ends beside the libraries they serve, and the types that users see. Works on a
# clean clone of HEAD, so it needs git, Python 3.11 or later and a C++ compiler, nothing else; fails
# when anything fails. A compiler that brings no sanitizers is no failure, nor is a machine that
# cannot have PyTorch or has no valgrind: a line says what was left out.
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/steps.sh
. scripts/steps.sh

documentation() {
  environment docs "$work"/dist/roipool-*.whl --group docs
  "$work/docs/bin/sphinx-build" --quiet --fail-on-warning --keep-going docs "$work/site"
  if ! command -v npm >/dev/null || ! command -v chromium >/dev/null; then
    echo "npm or Chromium is not installed: the accessibility of pages was not checked"
    return
  fi
  npm pack --silent --pack-destination "$work" axe-core@4.10.3
  tar -xzf "$work/axe-core-4.10.3.tgz" -C "$work"
  "$work/docs/bin/python" scripts/accessibility.py "$work/package/axe.min.js" "$work/site"
}

counts() {
  "$work/user/bin/python" benchmarks/instructions.py --if-alike
  "$work/user/bin/python" benchmarks/many_cores.py --only fpn-box # all take long
}

oldest_jax() {
  environment oldest "$work"/dist/roipool-*.whl "pytest>=8" ml_dtypes flatbuffers "jax==0.8.0"
  cd "$work/oldest"
  bin/pytest --quiet --rootdir="$work/roipool" -p no:cacheprovider -k "not TestContract" \
    "$work"/roipool/tests/front_ends/test_jax_{export,ffi,settings,contract}.py
}

# Tests beside the libraries of front ends, from a folder where no source hides the wheel.
tests_beside_libraries() {
  (cd "$work/front_ends" &&
    bin/pytest --quiet -n auto --thorough --rootdir="$work/roipool" -p no:cacheprovider "$@")
}

start front_ends front_ends

step "sdist and wheel"
environment lint --group distributions "build>=1.2"
distributions

start documentation documentation
environment user "roipool[test] @ file://$(echo "$work"/dist/roipool-*.whl)" --group docs --group cuda \
  "cython>=3.1" "setuptools>=77" threadpoolctl # to build a small tree
start calls "$work/user/bin/python" -P -m roipool.tools.random_calls --calls 9000 --seed 1

step "CUDA kernels: registers and spills"
"$work/user/bin/python" benchmarks/cuda_resources.py --check

step "the page's engine is what its compiler makes, and its scripts have their types"
environment playground --group playground
"$work/playground/bin/python" scripts/playground.py --check
if command -v npx >/dev/null; then
  npx --yes --package typescript@7.0.2 tsc --project roipool/tools/compare/data/page/jsconfig.json
else
  echo "npx is not installed: the types of the page's scripts were not checked"
fi

step "documentation"
finish documentation

step "random calls against the oracle and one another"
finish calls

step "tests: those that README's command leaves out, and the others in more types and layouts"
"$work/user/bin/pytest" --quiet -n auto --thorough -m "not gpu" --durations=30 \
  --durations-min=5 -p no:cacheprovider

if command -v valgrind >/dev/null; then
  start counts counts
else
  echo "valgrind is not installed: neither instructions nor the work for many threads were counted"
fi

step "CUDA kernels: emulated under sanitizers"
status=0
PYTHON="$work/user/bin/python" tests/emulator/sanitize.sh || status=$?
[ "$status" -eq 0 ] || [ "$status" -eq 77 ] # 77: not this compiler

if [ -n "${started[counts]:-}" ]; then
  step "instructions, and the work of calls cut for many threads, counted by valgrind"
  finish counts
fi

start oldest oldest_jax

step "front ends: PyTorch, JAX, Dask, array API"
if finish front_ends; then
  "$work/front_ends/bin/pip" install --quiet "$work"/dist/roipool-*.whl --group types \
    array-api-strict threadpoolctl
  # Each library's tests apart: beside JAX, the forks of others are warnings.
  for library in array_api_strict crop dask jax other random_calls ray tensorflow torch; do
    tests_beside_libraries "$PWD/tests/front_ends/test_$library"*.py
  done
  tests_beside_libraries "$PWD"/tests/package/test_{doctests,imports}.py
  tests_beside_libraries -k torch "$PWD"/tests/{engines/test_threads,cli/test_info}.py
  for library in torch:1500 dask:3000 jax:150; do
    "$work/front_ends/bin/python" -P -m roipool.tools.random_calls --front-end "${library%:*}" \
      --calls "${library#*:}" --seed 1
  done

  step "types, as users' checkers see them"
  "$work/front_ends/bin/python" -P scripts/check_types.py
else
  echo "PyTorch cannot be had here in ten minutes: the tests of front ends were left out"
fi

step "front end: the oldest JAX that the extra allows"
finish oldest
