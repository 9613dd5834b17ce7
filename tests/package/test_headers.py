"""Each kernel header compiles on its own; weights that come from no samples become taps."""

from __future__ import annotations

import subprocess
import sysconfig
from pathlib import Path

import pytest
from _support.run_cpp import COMPILER, KERNELS, run_cpp

pytestmark = pytest.mark.thorough  # a header that does not compile fails the build, too

GEOMETRY = sorted(path.name for path in KERNELS.glob("*.h"))
ENGINE = sorted(f"cpu/{path.name}" for path in (KERNELS / "cpu").glob("*.h"))


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


@pytest.mark.parametrize("header", GEOMETRY)
def test_geometry_header_compiles_alone(header: str, tmp_path: Path) -> None:
    assert complaints(f'#include "{header}"\n', tmp_path) == ""


@pytest.mark.parametrize("file", ENGINE)
def test_engine_header_compiles_alone(file: str, tmp_path: Path) -> None:
    python = sysconfig.get_path("include")  # for interrupts.h
    options = ("-DROIPOOL_ENGINE=test", "-Wno-psabi", f"-I{python}")
    assert complaints(f'#include "{file}"\n', tmp_path, *options) == ""


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

// Weights that come from no samples: a cell with two taps, one whose taps cancel out, and one whose
// weight is 0 but whose derivative is not.
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
    assert run_cpp(TAPPED, tmp_path).splitlines() == [
        "4 0",
        "3 0.75 1 2, 4 1 -0.5 0.5, 6 0 0.5 0, [3, 7)",
        "3 0.75 1 2, [3, 4)",  # entries beyond the room are dropped
    ]
