"""Faults that neither `roipool verify` nor random calls find: tests alone prove their absence.

Faults that random calls find are left to the operators of `mutants.py`.
"""

from __future__ import annotations

from typing import NamedTuple

KERNELS = "roipool/kernels"
CPU_TESTS = "tests/ops tests/engines tests/compat"
ORACLE = "tests/ops/test_oracle.py tests/ops/test_relations.py"
EMULATED = "tests/cuda tests/ops -k emulator"
VOLUMES = "tests/ops/test_roi_align_3d.py -k emulator"


class Fault(NamedTuple):
    """One fault."""

    name: str  # a word or two
    file: str  # where it is planted
    # Text that occurs once in the file, and its replacement.
    snippet: str
    replacement: str
    slip: str  # the mistake in words
    tests: str = CPU_TESTS  # arguments of pytest: the tests of the subject
    equivalent: str = ""  # why the fault changes no result, where it changes none

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
        "align: mmcv's float32",
        f"{KERNELS}/roi_align.h",
        "adaptive_grid(static_cast<float>(held))",
        "adaptive_grid(held)",
        "mmcv's number of samples is computed in the maps' type instead of float32",
        "tests/compat tests/ops/test_oracle.py",
    ),
    Fault(
        "pool: type of edges",
        f"{KERNELS}/roi_pool.h",
        "add_average_bins<double>(",
        "add_average_bins<T>(",
        "Chainer's bin edges are computed in the maps' type instead of float64",
        "tests/compat",
    ),
    Fault(
        "crop: nearest",
        f"{KERNELS}/crop_and_resize.h",
        "cell_at(round_half_away(position), axis.size)",
        "cell_at(floor_of(position + T(0.5)), axis.size)",
        "rounding by adding 0.5: wrong for the largest number below 0.5",
        "tests/ops/test_crop_ends.py tests/ops/test_oracle.py tests/compat/test_goldens.py",
    ),
    Fault(
        "precise: a bin of no length",
        f"{KERNELS}/precise_roi_pool.h",
        "maximum(T(1) - magnitude(low - cell), T(0)), T(0), T(0));",
        "T(0), T(0), T(0));",
        "a bin whose edges round to one number is empty instead of a point",
        "tests/ops/test_precise_roi_pool.py",
    ),
]

ENGINES = [
    Fault(
        "maximum: missing columns",
        f"{KERNELS}/cpu/maximum.cpp",
        "Count && last < i ? last : i;",
        "Count && last < i ? 0 : i;",
        "missing columns repeat the first cell instead of the last",
        "tests/compat/test_compat.py",
    ),
    Fault(
        "schedule: bytes of an index",
        f"{KERNELS}/cpu/schedule.h",
        "job.vectors * maximum<wide_int>(width * value, 8)",
        "job.vectors * (width * value)",
        "room for indices of the values' size: those of single channels are larger",
        ORACLE,
    ),
    Fault(
        "chunks: sums so far",
        f"{KERNELS}/cpu/dispatch.h",
        "if (job.chunk.is_first) {\n    memset(",
        "if (job.chunk.is_first || job.chunk.is_last) {\n    memset(",
        "the last chunk starts from zeros instead of the sums of earlier chunks",
        "tests/engines/test_chunks.py",
    ),
    Fault(
        "chunks: an image without boxes",
        f"{KERNELS}/cpu/schedule.h",
        "return !job.chunk.is_first && (!job.chunk.is_last || job.sums == job.output);",
        "return !job.chunk.is_first;",
        "half precision: the sums of an image without boxes in the last chunk are not stored",
        "tests/engines/test_chunks.py",
    ),
    Fault(
        "engine: end of the maps",
        f"{KERNELS}/cpu/pixels.h",
        "return end - map.line(last) < width * map.channels + channels_of_pixel;",
        "return end < map.line(last);",
        "the last pixel of the maps is loaded with what lies behind them",
        "tests/engines/test_pixels.py",
    ),
    Fault(
        "groups: last row of a part",
        f"{KERNELS}/cpu/position_sensitive.cpp",
        "  return {rows.first, rows.last, 0, job.columns.size};",
        "  return {rows.first, rows.last - (part + 1 < job.parts), 0, job.columns.size};",
        "rows between the parts of a gradient are of neither",
        "tests/engines/test_threads.py -k same_bits",
    ),
    Fault(
        "groups: sums of chunks",
        f"{KERNELS}/cpu/position_sensitive.cpp",
        "  if (job.chunk.is_last) {\n    unpack_planes",
        "  if (job.chunk.is_last || job.chunk.is_first) {\n    unpack_planes",
        "half precision: the first chunk's sums are stored as the gradient",
        "tests/engines/test_chunks.py",
    ),
    Fault(
        "call: wide argmax",
        f"{KERNELS}/cpu/call.h",
        "    if (needs_wide_argmax(job)) return status_wide_argmax;\n",
        "",
        "an index among more samples than 32 bits count is cut",
        "tests/engines/test_large.py -k argmax",
    ),
    Fault(
        "call: argmax after the last sample",
        f"{KERNELS}/cpu/call.h",
        "if (read_once(argmax + at) >= samples) return false;",
        "if (read_once(argmax + at) > samples) return false;",
        "`>` instead of `>=`: the number of samples is accepted as an index",
        "tests/arguments/test_bad_values.py",
    ),
]

CYTHON = [
    Fault(
        "call: copy of boxes",
        "roipool/_cpu.pyx",
        "    return in_c_order(array, dtype, cnp.NPY_ARRAY_ENSURECOPY)",
        "    return in_c_order(array, dtype, 0)",
        "boxes are not copied, although other threads may change them",
        "tests/engines/test_races.py",
    ),
    Fault(
        "levels: boxes of no map",
        "roipool/_cpu.pyx",
        "    if regions.levels is not None and sum(",
        "    if len(parts) > 1 and sum(",
        "in a pyramid of one map, bins of boxes without a map are not written",
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
        "out is written while overlapping features are read",
        "tests/arguments tests/ops",
    ),
    Fault(
        "mmcv: row of -1",
        "roipool/compat/mmcv.py",
        "lost = (y == -1) & (x == -1) if exact else y == -1",
        "lost = (y == -1) & (x == -1)",
        "a gradient that mmcv drops is kept",
        "tests/compat/test_rules.py",
    ),
]

CUDA = [
    Fault(
        "cuda: last pack",
        f"{KERNELS}/cuda/forward_blocks.h",
        "static_cast<Offset>(call.channels) - pack)) {}",
        "static_cast<Offset>(number) * pack)) {}",
        "a missing clamp: the last pack of channels exceeds their number",
        EMULATED,
    ),
    Fault(
        "cuda: boxes after the first batch",
        f"{KERNELS}/cuda/backward_tiles.h",
        "scatter(first + warp * warp_size +",
        "scatter(warp * warp_size +",
        "boxes are numbered within the batch instead of the call",
        EMULATED,
    ),
    Fault(
        "cuda: weights of the chunk before",
        f"{KERNELS}/cuda/average_backward.cu",
        "      clear(shared.weights[next]);\n",
        "",
        "weights of the previous chunk are not cleared",
        EMULATED,
    ),
    Fault(
        "cuda: bins in a plan",
        "roipool/_cuda/launch.py",
        "    cells = size + 4 * bins + 8\n",
        "    cells = size + 8\n",
        "the bound ignores that neighbouring bins share cells",
        "tests/cuda/test_decisions.py -k plans_fit",
    ),
    Fault(
        "cuda: rows of a plane",
        f"{KERNELS}/cuda/plan.h",
        "const int top = plane.cell * static_cast<int>(call.volume.plane_rows);",
        "const int top = plane.cell * static_cast<int>(call.volume.planes);",
        "a volume's planes begin elsewhere unless it has as many planes as rows",
        VOLUMES,
    ),
    Fault(
        "cuda: plane of a tile",
        f"{KERNELS}/cuda/backward_tile_bins.h",
        "if (plan.all_entries[tap].cell != tile.plane) continue;",
        "if (plan.all_entries[tap].cell > tile.plane) continue;",
        "a tile takes the weight of an earlier plane where a bin does not read its own",
        VOLUMES,
    ),
    Fault(
        "cuda: map of a rotated box",
        f"{KERNELS}/cuda/rotated_boxes.h",
        "call.levels[level_of_image(call, image)];",
        "call.levels[0];",
        "boxes of every map of a pyramid have the scale and the size of the first",
        "tests/compat/test_pyramids.py -k emulator",
    ),
]

FAULTS = [*DEFINITIONS, *ENGINES, *CYTHON, *PYTHON, *CUDA]
