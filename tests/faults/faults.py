"""Instructive faults for `plant.py`, which the operators of `mutants.py` cannot make."""

from __future__ import annotations

from typing import NamedTuple

KERNELS = "roipool/kernels"
CPU_TESTS = "tests/ops tests/engines tests/compat"
ORACLE = "tests/ops/test_oracle.py tests/ops/test_gradients.py"
EMULATED = "tests/cuda tests/ops -k emulator"


class Fault(NamedTuple):
    """One fault.

    Attributes
    ----------
    name : str
        A word or two.
    file : str
        Where it is planted.
    snippet, replacement : str
        Text that occurs once in the file, and what stands there instead.
    slip : str
        What somebody did wrong.
    tests : str
        Arguments of pytest: the tests of the subject.
    equivalent : str
        Why the fault changes no result, where it changes none.
    """

    name: str
    file: str
    snippet: str
    replacement: str
    slip: str
    tests: str = CPU_TESTS
    equivalent: str = ""

    def planted(self, text: str) -> str:
        """Return the file's text with the fault."""
        return text.replace(self.snippet, self.replacement)

    @property
    def on_gpu(self) -> bool:
        """Whether the fault affects only the CUDA engine."""
        return "cuda" in self.file

    @property
    def by_tests_only(self) -> bool:
        """Whether the fault is in code that calls on NumPy arrays do not reach."""
        folders = ("torch", "jax", "dask", "_arrays/_cupy", "_dlpack")
        return self.on_gpu or self.file.startswith(tuple(f"roipool/{name}" for name in folders))


DEFINITIONS = [
    Fault(
        "align: slope in the margin",
        f"{KERNELS}/roi_align.h",
        "const T slope = position < T(0) ? T(0) : T(1);",
        "const T slope = T(1);",
        "the gradient of boxes forgets that the margin is flat",
    ),
    Fault(
        "align: margin of dense samples",
        f"{KERNELS}/roi_align.h",
        "return numbers_between(grid, bin, T(-1), T(size));",
        "return numbers_between(grid, bin, T(0), T(size - 1));",
        "where samples outside the map are skipped, those before the first cell are, too",
        ORACLE,
    ),
    Fault(
        "align: slack of dense samples",
        f"{KERNELS}/roi_align.h",
        "const T slack = T(4) + magnitude(begin / step) * T(1e-6);",
        "const T slack = T(0);",
        "no slack for rounding where samples outside the map are skipped",
        ORACLE,
    ),
    Fault(
        "align: largest grid",
        f"{KERNELS}/roi_align.h",
        "samples < T(max_adaptive_grid) ? static_cast<wide_int>(samples) : max_adaptive_grid;",
        "to_wide_int(samples);",
        "a missing clamp: the adaptive grid of a giant box has no limit",
        ORACLE,
    ),
    Fault(
        "align: mmcv's float32",
        f"{KERNELS}/roi_align.h",
        "adaptive_grid(static_cast<float>(held))",
        "adaptive_grid(held)",
        "mmcv's count of samples in the maps' type, not in float32",
        "tests/compat tests/ops/test_oracle.py",
    ),
    Fault(
        "pool: half to even",
        f"{KERNELS}/config.h",
        "return roundf(value);",
        "return rintf(value);",
        "half to even for half away from zero, in float32",
    ),
    Fault(
        "pool: type of edges",
        f"{KERNELS}/roi_pool.h",
        "add_average_bins<double>(",
        "add_average_bins<T>(",
        "Chainer's bin edges in the maps' type, not in float64",
        "tests/compat",
    ),
    Fault(
        "crop: nearest",
        f"{KERNELS}/crop_and_resize.h",
        "cell_at(round_half_away(position), axis.size)",
        "cell_at(floor_of(position + T(0.5)), axis.size)",
        "rounding by adding a half: wrong for the number just below one half",
        "tests/ops/test_crop_ends.py tests/ops/test_oracle.py tests/ops/test_goldens.py",
    ),
    Fault(
        "crop: TensorFlow's gradient",
        f"{KERNELS}/crop_and_resize.h",
        "  if (axis.bins > 1) grid.step = (axis.high - axis.low) * cells_per_step(axis);\n",
        "",
        "the gradient of boxes takes the forward's step, which rounds otherwise",
    ),
    Fault(
        "bfloat16: ties",
        f"{KERNELS}/config.h",
        "(bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16",
        "(bits + 0x8000u) >> 16",
        "half up for half to even",
        "tests/ops/test_storage.py",
    ),
]

PLANS = [
    Fault(
        "plan: sampling of columns",
        f"{KERNELS}/cpu/plan.h",
        "request.sampling[vertical ? 0 : 1]",
        "request.sampling[0]",
        "columns take the sampling ratio of rows",
    ),
    Fault(
        "plan: padded tap",
        f"{KERNELS}/cpu/plan.h",
        "    weight[max_tap] *= T(0.5);\n",
        "",
        "a padded tap counted twice: the weight is copied, not halved",
    ),
    Fault(
        "plan: digits of a cell",
        f"{KERNELS}/cpu/plan.h",
        "const int steps = (digits + 7) / 8;",
        "const int steps = maximum(digits / 8, 1);",
        "rounded down: cells of windows wider than 256 are sorted by their last 8 digits",
    ),
]

ENGINES = [
    Fault(
        "average: samples far apart",
        f"{KERNELS}/cpu/average.cpp",
        "    const ColumnList listed = {read.source, distinct_columns(read)};",
        "    const ColumnList listed = {read.source, read.count};",
        "the error of the first release: from the fifth row tap on, a column that a padded line "
        "lists twice is added to twice",
        ORACLE,
    ),
    Fault(
        "average: 0 * NaN",
        f"{KERNELS}/cpu/average.cpp",
        "if (weight != Value(0)) *sum = ",
        "*sum = ",
        "a missing check: cells of weight 0 take part in gradients of boxes",
    ),
    Fault(
        "maximum: tie with a zero",
        f"{KERNELS}/cpu/maximum.cpp",
        "(zero > value[i]) | ((zero == value[i]) & (indices < index[i]))",
        "(zero > value[i])",
        "a sample outside the map that comes before an equal one does not win",
    ),
    Fault(
        "maximum: missing columns",
        f"{KERNELS}/cpu/maximum.cpp",
        "Count && last < i ? last : i;",
        "Count && last < i ? 0 : i;",
        "the first cell is taken again for columns that are missing, not the last",
        "tests/compat/test_compat.py",
    ),
    Fault(
        "schedule: bytes of an index",
        f"{KERNELS}/cpu/schedule.h",
        "job.vectors * maximum<wide_int>(width * value, 8)",
        "job.vectors * (width * value)",
        "room for indices as wide as values: those of single channels are wider",
        ORACLE,
    ),
    Fault(
        "chunks: sums so far",
        f"{KERNELS}/cpu/dispatch.h",
        "if (job.chunk.is_first) {\n    memset(",
        "if (job.chunk.is_first || job.chunk.is_last) {\n    memset(",
        "the last chunk begins with zeros, not with the sums of those before it",
        "tests/engines/test_chunks.py",
    ),
    Fault(
        "chunks: an image without boxes",
        f"{KERNELS}/cpu/dispatch.h",
        "return !job.chunk.is_first && (!job.chunk.is_last || job.sums == job.output);",
        "return !job.chunk.is_first;",
        "half precision: sums of an image stay where they are if the last chunk has no box of it",
        "tests/engines/test_chunks.py",
    ),
]

CYTHON = [
    Fault(
        "call: copy of boxes",
        "roipool/_cpu.pyx",
        "    return in_c_order(array, dtype, cnp.NPY_ARRAY_ENSURECOPY)",
        "    return in_c_order(array, dtype, 0)",
        "boxes are used where they are, though other threads may change them",
        "tests/engines/test_races.py",
    ),
    Fault(
        "levels: boxes of no map",
        "roipool/_cpu.pyx",
        "    if regions.levels is not None and sum(",
        "    if len(parts) > 1 and sum(",
        "of a pyramid of one map, bins of boxes of no map are not written",
        "tests/ops/test_multilevel_roi_align.py",
    ),
]

PYTHON = [
    Fault(
        "arguments: overlapping out",
        "roipool/_arguments.py",
        """    if not library.can_be_filled(out) or any(
        LIBRARY_OF[type(array)] is library and library.may_share_memory(out, array)
        for value in inputs.values()
        for array in parts_of(value)
    ):""",
        "    if not library.can_be_filled(out):",
        "out is filled while it is read",
        "tests/arguments tests/ops",
    ),
    Fault(
        "mmcv: row of -1",
        "roipool/compat/mmcv.py",
        "lost = (y == -1) & (x == -1) if exact else y == -1",
        "lost = (y == -1) & (x == -1)",
        "the gradient that mmcv loses is kept",
        "tests/compat/test_rules.py",
    ),
    Fault(
        "onnx: lowest float64",
        "roipool/compat/onnx.py",
        "lowest = float(np.finfo(real_dtype(dtype)).min)",
        "lowest = float(np.finfo(np.float32).min)",
        "a maximum of float64 starts at the lowest float32",
        "tests/compat",
    ),
    Fault(
        "conventions: float32 scale",
        "roipool/compat/_conventions.py",
        "number = float(np.float32(check.real_number(name, value)))",
        "number = check.real_number(name, value)",
        "scales are not rounded to float32",
        "tests/compat",
    ),
]

CUDA = [
    Fault(
        "cuda: last pack",
        f"{KERNELS}/cuda/forward_blocks.h",
        "static_cast<Offset>(call.channels) - pack)) {}",
        "static_cast<Offset>(number) * pack)) {}",
        "a missing clamp: the last pack of channels reaches beyond them",
        EMULATED,
    ),
    Fault(
        "cuda: boxes after the first batch",
        f"{KERNELS}/cuda/backward_tiles.h",
        "scatter(first + warp * warp_size +",
        "scatter(warp * warp_size +",
        "boxes are counted from the batch's first, not from the call's",
        EMULATED,
    ),
    Fault(
        "cuda: weights of the chunk before",
        f"{KERNELS}/cuda/average_backward.cu",
        "      clear(shared.weights[next]);\n",
        "",
        "weights are not cleared: those of an earlier chunk stay where the next has none",
        EMULATED,
    ),
    Fault(
        "cuda: bins in a plan",
        "roipool/_cuda/launch.py",
        "    cells = size + 4 * bins + 8\n",
        "    cells = size + 8\n",
        "the bound forgets that neighbouring bins share cells",
        "tests/cuda/test_decisions.py -k plans_fit",
    ),
]

FAULTS = [*DEFINITIONS, *PLANS, *ENGINES, *CYTHON, *PYTHON, *CUDA]
