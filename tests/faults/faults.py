"""Instructive faults for `plant.py`, which the operators of `mutants.py` cannot make."""

from __future__ import annotations

from typing import NamedTuple

KERNELS = "roipool/kernels"
CPU_TESTS = "tests/ops tests/engines tests/compat"
ORACLE = "tests/ops/test_oracle.py tests/ops/test_relations.py"
EMULATED = "tests/cuda tests/ops -k emulator"
VOLUMES = "tests/ops/test_roi_align_3d.py -k emulator"


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
        "the gradient of boxes is not 0 in the margin",
    ),
    Fault(
        "align: margin of dense samples",
        f"{KERNELS}/roi_align.h",
        "return numbers_between(grid, bin, T(-1), T(size));",
        "return numbers_between(grid, bin, T(0), T(size - 1));",
        "dense samples in the margin are skipped like samples outside the map",
        ORACLE,
    ),
    Fault(
        "align: slack of dense samples",
        f"{KERNELS}/roi_align.h",
        "const T slack = T(4) + magnitude(begin / step) * T(1e-6);",
        "const T slack = T(0);",
        "no slack for rounding when samples outside the map are skipped",
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
        "mmcv's number of samples is computed in the maps' type instead of float32",
        "tests/compat tests/ops/test_oracle.py",
    ),
    Fault(
        "deform: share of the side",
        f"{KERNELS}/deform_roi_pool.h",
        "grid.start + offsets.factor * length * offset;",
        "grid.start + offsets.factor * offset;",
        "bins are moved by cells instead of shares of the box's side",
        "tests/ops tests/compat/test_goldens.py -k deform",
    ),
    Fault(
        "deform: offsets by bin",
        f"{KERNELS}/deform_roi_pool.h",
        "axis.vertical ? bin / offsets.bins_across : bin % offsets.bins_across",
        "axis.vertical ? bin % offsets.bins_across : bin / offsets.bins_across",
        "rows and columns of bins are taken for each other",
        "tests/ops tests/compat/test_goldens.py -k deform",
    ),
    Fault(
        "deform: gradient of the side",
        f"{KERNELS}/deform_roi_pool.h",
        "gradient.by_high += axis.scale * bin.share;",
        "gradient.by_high -= axis.scale * bin.share;",
        "a bin that its offset moves does not move further as the box grows",
        "tests/ops -k deform",
    ),
    Fault(
        "deformable: half a step",
        f"{KERNELS}/deformable_ps_roi_pool.h",
        "return this->start + T(number) * step;",
        "return this->start + (T(number) + T(0.5)) * step;",
        "samples begin half a step after the bin's corner",
        "tests/ops tests/compat/test_deformable_ps.py -k deformable",
    ),
    Fault(
        "deformable: the last pixel",
        f"{KERNELS}/deformable_ps_roi_pool.h",
        "(round_half_away(axis.high) + T(1)) * axis.scale",
        "round_half_away(axis.high) * axis.scale",
        "the last pixel does not belong to the box",
        "tests/ops tests/compat/test_deformable_ps.py -k deformable",
    ),
    Fault(
        "deformable: slope at the centre",
        f"{KERNELS}/deformable_ps_roi_pool.h",
        "if (fraction == T(0)) return whole_cell<T>(low);",
        "",
        "the gradient of an offset on a cell's centre is that to the right instead of 0",
        "tests/ops tests/compat/test_deformable_ps.py -k deformable",
    ),
    Fault(
        "deformable: part of a bin",
        "roipool/_by_class.py",
        "return [number * parts // bins for number in range(bins)]",
        "return [min(number, parts - 1) for number in range(bins)]",
        "bins beyond the number of parts share the offset of the last",
        "tests/ops -k deformable",
    ),
    Fault(
        "deform: mmcv's border",
        f"{KERNELS}/deform_roi_pool.h",
        "extrapolates ? extrapolated_border(position, axis.size)",
        "false ? extrapolated_border(position, axis.size)",
        "mmcv's gradient of offsets holds samples at the border, as the derivative does",
        "tests/compat/test_goldens.py tests/compat/test_mmcv_deform.py -k deform",
    ),
    Fault(
        "deform: order of offsets",
        f"{KERNELS}/cpu/plan.h",
        "numbers + numbers_of_corners + (vertical ? plan.bins : 0)",
        "numbers + numbers_of_corners + (vertical ? 0 : plan.bins)",
        "offsets by x and by y are taken for each other",
        "tests/ops tests/compat/test_goldens.py -k deform",
    ),
    Fault(
        "garden: before the first cell",
        f"{KERNELS}/garden_crop.h",
        "const T fraction = position - T(cell);",
        "const T fraction = maximum(position - T(cell), T(0));",
        "weights are held ahead of the map, as cells are",
        "tests/compat/test_model_garden.py",
    ),
    Fault(
        "pool: half to even",
        f"{KERNELS}/config.h",
        "return roundf(value);",
        "return rintf(value);",
        "halves are rounded to even instead of away from zero in float32",
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
        "tests/ops/test_crop_ends.py tests/ops/test_oracle.py tests/ops/test_goldens.py",
    ),
    Fault(
        "crop: filter",
        f"{KERNELS}/crop_and_resize.h",
        "if (width > T(1) && filter",
        "if (width > T(2) && filter",
        "skips cells of crops that are made up to half as small",
        "tests/ops/test_antialias.py tests/ops/test_oracle.py",
    ),
    Fault(
        "crop: TensorFlow's gradient",
        f"{KERNELS}/crop_and_resize.h",
        "  if (axis.bins > 1) grid.step = (axis.high - axis.low) * cells_per_step(axis);\n",
        "",
        "the gradient of boxes uses the forward's step, which is rounded differently",
    ),
    Fault(
        "bfloat16: ties",
        f"{KERNELS}/config.h",
        "(bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16",
        "(bits + 0x8000u) >> 16",
        "halves are rounded up instead of to even",
        "tests/ops/test_storage.py",
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

PLANS = [
    Fault(
        "plan: sampling of columns",
        f"{KERNELS}/cpu/plan.h",
        "request.sampling[direction == down ? 0 : 1]",
        "request.sampling[0]",
        "columns take the sampling ratio of rows",
    ),
    Fault(
        "plan: scale of planes",
        f"{KERNELS}/cpu/plan.h",
        "return direction == deep ? request.depth.scale : request.depth.row_scale;",
        "return request.depth.row_scale;",
        "planes of a volume take the scale of rows",
    ),
    Fault(
        "plan: rows of a plane",
        f"{KERNELS}/cpu/volumes.h",
        "factors.depth.cell[z] * factors.rows.size;",
        "factors.depth.cell[z] * factors.depth.size;",
        "a volume's planes begin elsewhere unless it has as many planes as rows",
    ),
    Fault(
        "plan: slopes of depth",
        f"{KERNELS}/cpu/volumes.h",
        "static_cast<T*>(product.slope[2 + end])[tap] =\n        deep_weight",
        "static_cast<T*>(product.slope[2 + end])[tap] =\n        row_weight",
        "the gradient of a box's rows has the weights of rows instead of depth",
    ),
    Fault(
        "engine: rows of a plane that are packed",
        f"{KERNELS}/cpu/schedule.h",
        "window.read_of_plane = rows.window_last[box] - rows.window_first[box];",
        "window.read_of_plane = rows.window_last[box] - rows.window_first[box] - 1;",
        "the last row that a box reads of each plane is not copied",
    ),
    Fault(
        "plan: padded tap",
        f"{KERNELS}/cpu/plan.h",
        "    weight[max_tap] *= T(0.5);\n",
        "",
        "a padded tap counts twice: its weight is copied instead of halved",
    ),
    Fault(
        "plan: digits of a cell",
        f"{KERNELS}/cpu/plan.h",
        "const int steps = (digits + 7) / 8;",
        "const int steps = maximum(digits / 8, 1);",
        "the number of digits is rounded down: wide windows are sorted by the last 8 bits of cells",
    ),
]

ENGINES = [
    Fault(
        "average: samples far apart",
        f"{KERNELS}/cpu/average.cpp",
        "    const ColumnList listed = {read.source, distinct_columns(read)};",
        "    const ColumnList listed = {read.source, read.count};",
        "from the fifth row tap on, a column listed twice in a padded line is added twice",
        ORACLE,
    ),
    Fault(
        "average: 0 * NaN",
        f"{KERNELS}/cpu/box_gradients.h",
        "if (weight != Value(0)) *sum = ",
        "*sum = ",
        "a missing check: cells of weight 0 take part in gradients of boxes",
    ),
    Fault(
        "maximum: tie with a zero",
        f"{KERNELS}/cpu/running_maximum.h",
        "(zero > value[i]) | ((zero == value[i]) & (indices < index[i]))",
        "(zero > value[i])",
        "a sample outside the map does not win against a later equal sample",
    ),
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
        "engine: end of a row of bins",
        f"{KERNELS}/cpu/pixels.h",
        "if (wide_int(left) * channels >= channels_of_pixel) {",
        "if (left > 1) {",
        "bins of one channel are stored over what lies behind the result",
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

FAULTS = [*DEFINITIONS, *PLANS, *ENGINES, *CYTHON, *PYTHON, *CUDA]
