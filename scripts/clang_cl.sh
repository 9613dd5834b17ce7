#!/usr/bin/env bash
# Compiles every engine for Windows as releases do, by clang-cl and for Microsoft's ABI, on Linux. The
# headers of the C++ library are MinGW's (g++-mingw-w64-x86-64-posix): Microsoft's cannot be had here,
# so nothing is linked or run; scripts/windows.sh does that. CLANG_CL names the compiler.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

gcc=$(x86_64-w64-mingw32-g++-posix -print-file-name=include)/c++
# For these headers clang must pass as GCC too; roipool's own ask for neither.
headers=(/clang:-fgnuc-version=12.2.0 -D__MINGW32__ -D__MINGW64__ -D_UCRT -D__STRICT_ANSI__
  -imsvc "$gcc" -imsvc "$gcc/x86_64-w64-mingw32" -imsvc /usr/x86_64-w64-mingw32/include)
flags=(--target=x86_64-pc-windows-msvc /nologo /c /EHsc -openmp -Wno-everything
  /clang:-std=c++17 /clang:-O3 /clang:-ffp-contract=off /clang:-fno-math-errno)

for engine in average maximum; do
  for isa in baseline: avx2:/clang:-march=x86-64-v3 avx512:/clang:-march=x86-64-v4; do
    name=${isa%%:*}
    "${CLANG_CL:-clang-cl}" "${flags[@]}" "${headers[@]}" "-DROIPOOL_ENGINE=$name" ${isa#*:} \
      "-Fo$work/$engine.$name.obj" "roipool/kernels/cpu/$engine.cpp"
    echo "$engine, $name: $(stat -c %s "$work/$engine.$name.obj") bytes"
  done
done
