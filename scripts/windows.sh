#!/usr/bin/env bash
# Builds roipool for Windows on Linux and runs it under Wine, where no Windows machine is at hand:
#   scripts/windows.sh PYTHON [arguments of python.exe]      by default -m roipool verify
# PYTHON is the folder of a Python for Windows (amd64) that has NumPy, with its headers in `include`:
# that of NuGet's package `python`, for one. MinGW's GCC compiles (g++-mingw-w64-x86-64-posix), with
# setup.py's own flags, and links against python3.dll, which has the functions of the limited API and
# no other. Releases are compiled by clang-cl: see setup.py. The interpreter that runs setup.py is
# named by BUILD_PYTHON (default python), and needs Cython, NumPy and setuptools. WINDOWS names a
# folder for the build, which is kept; WINE the program that runs others (default wine).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=$(realpath "$1")
shift
[ "$#" -gt 0 ] || set -- -m roipool verify

work=${WINDOWS:-}
if [ -z "$work" ]; then
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
fi
mkdir -p "$work"
work=$(realpath "$work")
compiler=x86_64-w64-mingw32-g++-posix
numpy=$(dirname "$(find "$python" -path '*/numpy/__init__.py' -print -quit)")

# MinGW's own round() takes 0.49999999999999994 to 1; Windows' does not.
printf 'LIBRARY ucrtbase.dll\nEXPORTS\nround\nroundf\n' >"$work/round.def"
x86_64-w64-mingw32-dlltool -d "$work/round.def" -l "$work/libround.a"
# These headers come before those of the system. GCC aligns no stack for AVX on Windows (its bug
# 54412): the assembler makes every move one that need not be aligned.
flags="-I$python/include -I$numpy/_core/include -fopenmp -Wa,-muse-unaligned-vector-move"
# setup.py shall not look for OpenMP: its probe cannot run here, and the flags build it in.
CC=$compiler CXX=$compiler LDSHARED="$compiler -shared" LDCXXSHARED="$compiler -shared" \
  CFLAGS=$flags CXXFLAGS=$flags ROIPOOL_NO_OPENMP=1 \
  LDFLAGS="-static -Wl,-u,round -Wl,-u,roundf $work/libround.a $python/python3.dll" \
  "${BUILD_PYTHON:-python}" setup.py -q build --build-base "$work" >"$work/log" 2>&1 || {
  cat "$work/log" >&2
  exit 1
}
library=$(echo "$work"/lib.*)
mv "$library"/roipool/_cpu.*so "$library/roipool/_cpu.pyd"
PYTHONPATH=$library ${WINE:-wine} "$python/python.exe" "$@"
