# What `.ci/run` and scripts/nightly.sh share; bash sources this in the repository's root. It goes to
# a clean clone of HEAD, in a folder that is removed at the end.
# shellcheck shell=bash
set -euo pipefail
work=$(mktemp -d)
declare -A started=()
trap 'kill "${started[@]}" 2>/dev/null || true; rm -rf "$work"' EXIT
unset PYTHONPATH VIRTUAL_ENV
export PIP_DISABLE_PIP_VERSION_CHECK=1

step() { printf '\n== %s (after %d s)\n' "$1" "$SECONDS"; }

# Steps that use one processor run beside others: `start NAME COMMAND ...`, and later `finish NAME`.
start() {
  "${@:2}" >"$work/$1.log" 2>&1 &
  started[$1]=$!
}
finish() {
  local status=0
  wait "${started[$1]}" || status=$?
  unset "started[$1]"
  cat "$work/$1.log"
  return "$status"
}

# Makes the environment `$work/NAME` with a pip that knows dependency groups, and installs the rest
# of the arguments into it.
environment() {
  python3 -m venv "$work/$1"
  "$work/$1/bin/pip" install --quiet --upgrade pip
  "$work/$1/bin/pip" install --quiet "${@:2}"
}

# PyTorch, JAX and the like take 5 GB; `finish front_ends` fails where they cannot be had.
front_ends() {
  python3 -m venv "$work/front_ends"
  "$work/front_ends/bin/pip" install --quiet --upgrade pip
  timeout 600 "$work/front_ends/bin/pip" install --quiet --no-cache-dir --group torch jax \
    flatbuffers "dask[array]" distributed "zarr>=3" "pytest>=8" "pytest-xdist>=3.6" ml_dtypes
}

# Builds the sdist, and from it a wheel, into `$work/dist`. Files that git does not have must not get
# in. An installation of the checkout has left compiled objects, which serve equal sources.
distributions() {
  touch roipool/stray.txt roipool/kernels/stray.txt
  "$work/lint/bin/python" -m build --sdist --outdir "$work/dist" . >"$work/sdist.log" || {
    cat "$work/sdist.log"
    return 1
  }
  rm roipool/stray.txt roipool/kernels/stray.txt
  mkdir "$work/sdist"
  tar -xzf "$work"/dist/roipool-*.tar.gz -C "$work/sdist" --strip-components=1
  diff --recursive --exclude='*.so' --exclude=_cpu.cpp roipool/kernels "$work/sdist/roipool/kernels"
  if [ -d build ]; then
    mkdir "$work/sdist/build"
    cp --archive build/temp.* "$work/sdist/build/"
  fi
  "$work/lint/bin/pip" wheel --quiet --no-deps --wheel-dir "$work/dist" "$work/sdist"
  "$work/lint/bin/twine" check --strict "$work"/dist/*
  "$work/lint/bin/check-wheel-contents" "$work"/dist/roipool-*.whl
  "$work/lint/bin/abi3audit" --strict "$work"/dist/roipool-*.whl
}

git clone --quiet . "$work/roipool"
cd "$work/roipool"
