"""Each kernel header compiles on its own, and the geometry compiles for all GPUs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from _support import nvrtc

from roipool._cuda.source import flatten

pytestmark = pytest.mark.thorough  # what does not compile fails everywhere else, too

# Those of the source tree: an installed package holds only what is read at run time.
SOURCES = next(folder for folder in Path(__file__).parents if (folder / "pyproject.toml").exists())
KERNELS = SOURCES / "roipool" / "kernels"
GEOMETRY = sorted(path.name for path in KERNELS.glob("*.h"))
ENGINE = sorted(f"cpu/{path.name}" for path in (KERNELS / "cpu").glob("*.h"))

# ---- A C++ compiler


COMPILER = shutil.which(os.environ.get("CXX", "g++").split()[0]) or shutil.which("c++")


def complaints(source: str, folder: Path, *options: str) -> str:
    """Return the C++ compiler's messages about `source`."""
    if COMPILER is None:
        pytest.skip("there is no C++ compiler (CXX, g++ or c++)")
    file = folder / "source.cpp"
    file.write_text(source)
    command = [COMPILER, "-std=c++17", "-fsyntax-only", "-Wall", "-Wextra", "-Werror"]
    result = subprocess.run(
        [*command, *options, f"-I{KERNELS}", str(file)], capture_output=True, text=True, check=False
    )
    return result.stderr if result.returncode else ""


def test_headers_are_there() -> None:
    assert {"config.h", "sample.h", "definitions.h", "roi_pool.h", "roi_align.h"} <= set(GEOMETRY)
    assert {"cpu/call.h", "cpu/plan.h", "cpu/regions.h"} <= set(ENGINE)


@pytest.mark.parametrize("header", GEOMETRY)
def test_geometry_header_compiles_alone(header: str, tmp_path: Path) -> None:
    assert complaints(f'#include "{header}"\n', tmp_path) == ""


@pytest.mark.parametrize("file", ENGINE)
def test_engine_header_compiles_alone(file: str, tmp_path: Path) -> None:
    python = sysconfig.get_path("include")  # of the one that looks for Ctrl-C
    options = ("-DROIPOOL_ENGINE=test", "-Wno-psabi", f"-I{python}")
    assert complaints(f'#include "{file}"\n', tmp_path, *options) == ""


def test_a_bad_header_would_not_compile(tmp_path: Path) -> None:
    assert "no_such_name" in complaints('#include "sample.h"\nint a = no_such_name;\n', tmp_path)


TAPPED = """
#include <stdio.h>
#include <initializer_list>
#include "sinks.h"
using namespace roipool;

struct Taps {
  static const bool slopes = true;
  struct { int cell; double weight, by_low, by_high; } all[9];
  int entries;

  int& cell(int tap) { return all[tap].cell; }
  double& weight(int tap) { return all[tap].weight; }
  double& by_low(int tap) { return all[tap].by_low; }
  double& by_high(int tap) { return all[tap].by_high; }
  int room() const { return entries; }
};

// Weights that come from no samples: a cell told twice, one that cancels out, one whose weight is 0
// but whose derivative is not.
template <typename Sink>
void integral(Sink& sink) {
  sink.begin_bin(0, 2);
  sink.tap(3, 1, 0, 4);
  sink.tap(4, 2, -1, 1);
  sink.tap(3, 0.5, 2, 0);
  sink.tap(5, 1, 1, 1);
  sink.tap(5, -1, -1, -1);
  sink.tap(6, 0, 1, 0);
}

int main() {
  TapCounter<double> counter;
  integral(counter);
  SampleCounter<double> samples;
  integral(samples);
  printf("%lld %lld\\n", counter.entries(), samples.entries());
  for (int room : {4, 1}) {
    Taps taps = {};
    taps.entries = room;
    TapWriter<double, Taps> writer(taps);
    integral(writer);
    writer.finish();
    for (int tap = 0; tap < writer.count; ++tap) {
      const auto& one = writer.taps.all[tap];
      printf("%d %g %g %g, ", one.cell, one.weight, one.by_low, one.by_high);
    }
    printf("[%d, %d)\\n", writer.window.first, writer.window.last);
  }
}
"""


def test_weights_without_samples_become_taps(tmp_path: Path) -> None:
    if COMPILER is None:
        pytest.skip("there is no C++ compiler (CXX, g++ or c++)")
    source, program = tmp_path / "source.cpp", tmp_path / "program"
    source.write_text(TAPPED)
    subprocess.run(
        [COMPILER, "-std=c++17", f"-I{KERNELS}", str(source), "-o", str(program)], check=True
    )
    printed = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout
    assert printed.splitlines() == [
        "4 0",
        "3 0.75 1 2, 4 1 -0.5 0.5, 6 0 0.5 0, [3, 7)",
        "3 0.75 1 2, [3, 4)",  # what there is no room for is dropped
    ]


# ---- CUDA


@pytest.fixture(scope="module")
def compiler() -> None:
    """Demand NVRTC on Linux, where the test dependencies bring it."""
    try:
        nvrtc.library()
    except FileNotFoundError as error:
        if sys.platform == "linux":
            raise
        pytest.skip(f"{error}: it exists for Linux and Windows only")


# Stores all results, so that the compiler cannot remove any of the geometry.
KERNEL = """
namespace {
template <typename T, bool Gradient>
struct Store {
  T* taps;

  __device__ void begin_bin(int bin, roipool::wide_int total) { *taps++ = T(bin) + T(total); }
  __device__ void add(roipool::wide_int number, const roipool::Sample<T>& sample,
                      const roipool::PositionGradient<T>& gradient = {}) {
    *taps++ = T(number) + sample.first_weight * T(sample.first);
    *taps++ = sample.second_weight * T(sample.second) + sample.slope + sample.position;
    if (!Gradient) return;
    *taps++ = gradient.by_low;
    *taps++ = gradient.by_high;
  }
  __device__ void tap(int cell, T weight, T by_low, T by_high) {
    *taps++ = T(cell) + weight;
    if (!Gradient) return;
    *taps++ = by_low;
    *taps++ = by_high;
  }
};
template <typename T>
__device__ void store_all(const roipool::Axis<T>* axes, T* taps) {
  Store<T, false> plain{taps};
  Store<T, true> with_gradient{taps};
  for (int name = 0; name < roipool::definition_count; ++name) {
    const roipool::Definition definition = static_cast<roipool::Definition>(name);
    roipool::visit_bins(definition, *axes, 0, axes->bins, plain);
    roipool::visit_bins(definition, *axes, 0, axes->bins, with_gradient);
  }
}
}  // namespace
extern "C" __global__ void store_float(const roipool::Axis<float>* axes, float* taps) {
  store_all(axes + threadIdx.x, taps);
}
extern "C" __global__ void store_double(const roipool::Axis<double>* axes, double* taps) {
  store_all(axes + threadIdx.x, taps);
}
"""


@pytest.mark.parametrize("architecture", [75, 120])  # the oldest and the newest
def test_geometry_compiles_for_gpus(architecture: int, compiler: None) -> None:
    if architecture not in nvrtc.architectures():
        pytest.skip(f"this version of NVRTC does not know sm_{architecture}")
    target = f"--gpu-architecture=compute_{architecture}"
    options = (target, "--std=c++17", "-fmad=false", "-ftz=true")
    ptx = nvrtc.compile_cuda(flatten("definitions.h") + KERNEL, *options)
    assert "store_float" in ptx
    assert "store_double" in ptx
    # The CPU's decisions are made without contraction; these have to be too.
    assert re.search(r"\b(fma|mad)\.(r[nzmp]\.)?(ftz\.)?f(32|64)", ptx) is None


@pytest.mark.parametrize("header", GEOMETRY)
def test_geometry_header_compiles_alone_for_gpus(header: str, compiler: None) -> None:
    nvrtc.compile_cuda(flatten(header), "--std=c++17", "-fmad=false")


def test_contraction_would_be_seen(compiler: None) -> None:
    one_of_all = "const int name = roipool::define_roi_align;"  # the rest takes seconds
    loop = re.search(r"for \(int name.*{", KERNEL)
    assert loop is not None
    text = flatten("definitions.h") + KERNEL.replace(loop[0], f"{{ {one_of_all}")
    ptx = nvrtc.compile_cuda(text, "--std=c++17", "-fmad=true")
    assert re.search(r"\bfma\.rn\.f32", ptx)


def test_errors_name_the_header_and_its_line(compiler: None, tmp_path: Path) -> None:
    for header in GEOMETRY:
        shutil.copy(KERNELS / header, tmp_path)
    broken = tmp_path / "roi_pool.h"
    lines = broken.read_text().splitlines()
    broken.write_text("\n".join([*lines, "no_such_type x;"]))
    with pytest.raises(SyntaxError, match=rf"roi_pool\.h\({len(lines) + 1}\)"):
        nvrtc.compile_cuda(flatten("definitions.h", tmp_path), "--std=c++17")
