"""The faults that `plant.py` plants, one at a time: each a plausible slip in one place."""

from __future__ import annotations

from typing import NamedTuple

KERNELS = "roipool/kernels"
CPU_TESTS = "tests/ops tests/engines tests/compat"
NON_TEMPORAL = "tests/engines/test_non_temporal.py"
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

    @property
    def on_gpu(self) -> bool:
        """Whether only the CUDA engine has it."""
        return "cuda" in self.file

    @property
    def by_tests_only(self) -> bool:
        """Whether it is in code that NumPy's calls do not reach."""
        folders = ("torch", "jax", "dask", "_arrays/_cupy", "_dlpack")
        return self.on_gpu or self.file.startswith(tuple(f"roipool/{name}" for name in folders))


DEFINITIONS = [
    Fault(
        "align: last position",
        f"{KERNELS}/roi_align.h",
        "position <= T(axis.size))) continue;\n      sink.add(number, replicate_border(",
        "position < T(axis.size))) continue;\n      sink.add(number, replicate_border(",
        "`<` for `<=`: a sample exactly at the map's end is outside",
    ),
    Fault(
        "align: first position of corners",
        f"{KERNELS}/roi_align.h",
        "if (!(position >= T(-1) && position <= T(axis.size))) continue;\n      const Sample<T>",
        "if (!(position > T(-1) && position <= T(axis.size))) continue;\n      const Sample<T>",
        "`>` for `>=`: a sample at -1 is outside, in ONNX's maximum only",
        "tests/compat",
    ),
    Fault(
        "align: margin",
        f"{KERNELS}/roi_align.h",
        "const T held = maximum(position, T(0));",
        "const T held = position;",
        "a missing clamp: positions before the first cell extrapolate",
    ),
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
        "align: length of exactly 1",
        f"{KERNELS}/roi_align.h",
        "const bool fixed_length = !axis.aligned && length < T(1);",
        "const bool fixed_length = !axis.aligned && length <= T(1);",
        "`<=` for `<`: a box one cell long counts as one held at that length",
        "tests/ops tests/compat",
    ),
    Fault(
        "align: infinite ends",
        f"{KERNELS}/roi_align.h",
        "  if (!(is_finite(start) && is_finite(end))) start = (start - start) + (end - end);\n",
        "",
        "a missing check: an infinite end passes",
        "tests/ops tests/compat",
    ),
    Fault(
        "align: mmcv's float32",
        f"{KERNELS}/roi_align.h",
        "adaptive_grid(static_cast<float>(held))",
        "adaptive_grid(held)",
        "mmcv's count of samples in the maps' type, not in float32",
        "tests/compat",
    ),
    Fault(
        "pool: half to even",
        f"{KERNELS}/config.h",
        "return roundf(value);",
        "return rintf(value);",
        "half to even for half away from zero, in float32",
    ),
    Fault(
        "pool: first cell",
        f"{KERNELS}/roi_pool.h",
        "  first = clamp(first, 0, size);\n",
        "  first = minimum(first, size);\n",
        "a missing clamp: bins begin before the map",
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
        "pool: empty box of mmcv",
        f"{KERNELS}/roi_pool.h",
        "length > T(0))) {",
        "length >= T(0))) {",
        "`>=` for `>`: a box without extent is pooled",
        "tests/compat/test_rules.py",
    ),
    Fault(
        "pool: last cell of Caffe's gather",
        f"{KERNELS}/roi_pool.h",
        "if (!(cell >= start && cell <= end)) return false;",
        "if (!(cell >= start && cell < end)) return false;",
        "`<` for `<=`: the last row and column get no gradient",
        "tests/compat",
    ),
    Fault(
        "crop: last position",
        f"{KERNELS}/crop_and_resize.h",
        "position <= T(axis.size - 1))) continue;\n    const int low",
        "position < T(axis.size - 1))) continue;\n    const int low",
        "`<` for `<=`: a sample on the last cell is outside",
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
        "crop: pinned end",
        f"{KERNELS}/crop_and_resize.h",
        "  grid.end_cell = axis.bins - 1;\n",
        "",
        "the last output cell lies where rounding puts it",
    ),
    Fault(
        "step: last corner",
        f"{KERNELS}/step_align.h",
        "if (high >= axis.size) return",
        "if (high > axis.size) return",
        "`>` for `>=`: a corner one beyond the map is read",
    ),
    Fault(
        "step: last sample",
        f"{KERNELS}/step_align.h",
        "position < range.last && number < total",
        "position <= range.last && number < total",
        "`<=` for `<`: a sample at the end of a bin, which is the next bin's",
    ),
    Fault(
        "argmax: of two as near",
        f"{KERNELS}/positions.h",
        "if (away < distance || (nearest < 0 && away == distance)) {",
        "if (away <= distance) {",
        "`<=` for `<`: of two samples as near the second is taken",
        "tests/compat/test_rules.py",
    ),
    Fault(
        "argmax: first outside",
        f"{KERNELS}/argmax.h",
        "return rows.end_index() * columns.total;",
        "return rows.end_index() * columns.count;",
        "the wrong stride: numbers of samples count those inside only",
        "tests/compat",
        equivalent="That line is reached only where no column is missing before those that are "
        "listed, nor after them: then `columns.count == columns.total`.",
    ),
    Fault(
        "bfloat16: ties",
        f"{KERNELS}/config.h",
        "(bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16",
        "(bits + 0x8000u) >> 16",
        "half up for half to even",
        "tests/ops/test_storage.py",
    ),
    Fault(
        "precise: last cell",
        f"{KERNELS}/precise_roi_pool.h",
        "clamp(to_wide_int(ceil_of(high)) + 1, 0, axis.size);",
        "clamp(to_wide_int(ceil_of(high)), 0, axis.size);",
        "off by one: the last cell whose hat reaches into a bin is left out",
        ORACLE,
    ),
    Fault(
        "rotated: last position",
        f"{KERNELS}/roi_align_rotated.h",
        "if (!(y >= T(-1) && y <= T(region.rows) &&",
        "if (!(y >= T(-1) && y < T(region.rows) &&",
        "`<` for `<=`: a sample exactly at the map's end is outside",
        "tests/ops/test_roi_align_rotated.py",
    ),
    Fault(
        "rotated: margin of dense samples",
        f"{KERNELS}/roi_align_rotated.h",
        "return {T(first) - T(1) - slack, T(last) + slack};",
        "return {T(first) - slack, T(last) - T(1) + slack};",
        "where samples outside the map are skipped, those beyond the outermost cells are, too",
        "tests/ops/test_roi_align_rotated.py",
    ),
    Fault(
        "rotated: slack of dense samples",
        f"{KERNELS}/roi_align_rotated.h",
        "      T(sizeof(T) == 4 ? 1e-6 : 1e-14);",
        "      T(0);",
        "no slack for rounding where samples outside the map are skipped",
        "tests/ops/test_roi_align_rotated.py",
    ),
    Fault(
        "rotated: held at 1",
        f"{KERNELS}/roi_align_rotated.h",
        "  if (grid.fixed_length) return T(0);\n",
        "",
        "the gradient of boxes forgets that a side was held at one cell",
        "tests/ops/test_roi_align_rotated.py",
    ),
]

PLANS = [
    Fault(
        "taps: merged too rarely",
        f"{KERNELS}/sinks.h",
        "tap >= count - 3; --tap",
        "tap >= count - 2; --tap",
        "one too few: a cell is looked for among the last two taps",
    ),
    Fault(
        "taps: weights of 0",
        f"{KERNELS}/sinks.h",
        "      if (!matters(tap)) continue;\n",
        "",
        "taps of weight 0 are kept: 0 * NaN spreads",
    ),
    Fault(
        "window: last cell",
        f"{KERNELS}/sinks.h",
        "maximum(last, cell + 1);",
        "maximum(last, cell);",
        "off by one: a half-open range taken for a closed one",
    ),
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
        "plan: room for padding",
        f"{KERNELS}/cpu/plan.h",
        "    if (begin[bin + 1] - begin[bin] < longest) longest = uneven;\n",
        "",
        "a missing check: lines are padded into the next line's room",
        ORACLE,
    ),
    Fault(
        "plan: room for the transpose",
        f"{KERNELS}/cpu/plan.h",
        "static_cast<wide_int>(lines) * longest <= 2LL * taps",
        "static_cast<wide_int>(lines) * longest <= 3LL * taps",
        "the wrong bound: the transposed plan has room for twice the taps",
    ),
    Fault(
        "plan: digits of a cell",
        f"{KERNELS}/cpu/plan.h",
        "const int steps = (digits + 7) / 8;",
        "const int steps = maximum(digits / 8, 1);",
        "rounded down: cells of windows wider than 256 are sorted by their last 8 digits",
    ),
    Fault(
        "plan: entries of a sample",
        f"{KERNELS}/cpu/plan.h",
        "request.entries == listed_samples ? 1 : 2;",
        "1;",
        "room for a tap of each sample, which may have two",
    ),
    Fault(
        "plan: end of the counts",
        f"{KERNELS}/cpu/plan.h",
        "wide_int* entries = plan.begin + box * plan.bins + 1;",
        "wide_int* entries = plan.begin + box * plan.bins;",
        "off by one: counts of entries in their own places",
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
        "average: fifth tap",
        f"{KERNELS}/cpu/average.cpp",
        "for (int done = 4; done < rows.count; done += 4) {",
        "for (int done = 4; done + 1 < rows.count; done += 4) {",
        "off by one: a single tap that is left over is lost",
    ),
    Fault(
        "average: 0 * NaN",
        f"{KERNELS}/cpu/average.cpp",
        "if (weight != Value(0)) *sum = ",
        "*sum = ",
        "a missing check: cells of weight 0 take part in gradients of boxes",
    ),
    Fault(
        "average: bins of cells",
        f"{KERNELS}/cpu/average.cpp",
        "if (cell < first || cell >= last) continue;",
        "if (cell < first || cell > last) continue;",
        "`>` for `>=`: bins that read the row below are summed, too",
        ORACLE,
        equivalent="Sums along the columns of more bins than are read: there is scratch memory for "
        "those of all bins, and the loop below takes rows of cells that the task owns, whose bins "
        "are all among the right ones. It costs a row of sums, where parts of a map cut a box: "
        "instructions of a backward on several threads (callgrind).",
    ),
    Fault(
        "maximum: ties",
        f"{KERNELS}/cpu/maximum.cpp",
        "(now < value[i]) == 0 : now > value[i];",
        "(now < value[i]) == 0 : now >= value[i];",
        "`>=` for `>`: the last of equals wins",
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
        "maximum: room for indices",
        f"{KERNELS}/cpu/schedule.h",
        "job.tiles = 1 + (job.argmax || job.nan_restarts) + job.non_temporal;",
        "job.tiles = 1 + (job.argmax != nullptr) + job.non_temporal;",
        "no room for indices where they are kept but not asked for",
        "tests/compat",
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
        "schedule: window of a part",
        f"{KERNELS}/cpu/schedule.h",
        "minimum(window.bottom, last), window.left,",
        "window.bottom, window.left,",
        "a missing clamp: the last rows of a part are those of the image",
        ORACLE,
        equivalent="A larger window than a task owns, which is packed and set to 0; `unpack` "
        "copies the task's own rows only. It costs scratch memory, and instructions that clear it, "
        "of a backward on several threads (callgrind).",
    ),
    Fault(
        "dispatch: below the window",
        f"{KERNELS}/cpu/dispatch.h",
        "if (y < window.top || y >= window.bottom) {",
        "if (y < window.top || y > window.bottom) {",
        "`>` for `>=`: the row below the window is copied from beyond it",
    ),
    Fault(
        "dispatch: beside the window",
        f"{KERNELS}/cpu/dispatch.h",
        "y + 1 < window.bottom ? window.left : 0;",
        "0;",
        "cells left of the window are cleared in its first row only",
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
    Fault(
        "lanes: last lane",
        f"{KERNELS}/cpu/transpose.h",
        """      for (int lane = 0; lane < lanes; ++lane) {
        compute_values(""",
        """      for (int lane = 0; lane < lanes - 1; ++lane) {
        compute_values(""",
        "a lane too few: the last channel of half types is not read",
    ),
    Fault(
        "lanes: last rows of a transpose",
        f"{KERNELS}/cpu/transpose.h",
        "  for (; y < rows; y += side) {",
        "  for (; y + side <= rows; y += side) {",
        "rows that are no whole square are left out",
    ),
    Fault(
        "lanes: channels left over",
        f"{KERNELS}/cpu/lanes.h",
        "    for (int lane = channels; lane < lanes; ++lane) to[i * lanes + lane] = Value(0);\n",
        "",
        "lanes without a channel are not set to 0",
        ORACLE,
        equivalent="Lanes know nothing of each other, and only those that have a channel are "
        "written, or summed for the gradient of boxes: what the others hold is nobody's.",
    ),
    Fault(
        "non-temporal: first line",
        f"{KERNELS}/cpu/non_temporal.h",
        "-reinterpret_cast<uintptr_t>(target) % 64",
        "reinterpret_cast<uintptr_t>(target) % 64",
        "the wrong sign: bytes since the last line's start, not until the next",
        NON_TEMPORAL,
    ),
    Fault(
        "non-temporal: runs side by side",
        f"{KERNELS}/cpu/non_temporal.h",
        "  if (stride == count) {",
        "  if (stride >= count) {",
        "the wrong stride: runs that lie apart are written as one",
        NON_TEMPORAL,
    ),
    Fault(
        "float16: ties",
        f"{KERNELS}/cpu/storage.h",
        "(magnitude - 0x38000000u + 0x0fffu + ((magnitude >> 13) & 1u)) >> 13",
        "(magnitude - 0x38000000u + 0x1000u) >> 13",
        "half up for half to even, where there is no instruction for it",
        "tests/ops/test_storage.py",
    ),
    Fault(
        "float16: overflow",
        f"{KERNELS}/cpu/storage.h",
        "magnitude >= 0x477ff000u ? 0x7c00u : half",
        "magnitude > 0x47800000u ? 0x7c00u : half",
        "the wrong limit: what rounds to 65536 does not become infinite",
        "tests/ops/test_storage.py",
        equivalent="What rounds to 65536 is infinite before it is compared: the rounding carries "
        "into the exponent.",
    ),
]

CYTHON = [
    Fault(
        "call: end of batch indices",
        "roipool/_cpu.pyx",
        "if -1 < image < limit and (cuts or",
        "if -1 < image <= limit and (cuts or",
        "`<=` for `<`: the index of an image after the last passes",
        "tests/arguments",
    ),
    Fault(
        "call: end of a table's batch indices",
        "roipool/_cpu.pyx",
        "        if not (0 <= image < images) or",
        "        if not (0 <= image <= images) or",
        "`<=` for `<`: the index of an image after the last passes",
        "tests/arguments",
    ),
    Fault(
        "call: cut batch indices",
        "roipool/_cpu.pyx",
        "        if -1 < image < limit and (cuts or",
        "        if 0 <= image < limit and (cuts or",
        "-0.5 is an error, and not cut to 0 as in C",
        "tests/compat",
    ),
    Fault(
        "call: numbers of samples",
        f"{KERNELS}/cpu/call.h",
        "if (read_once(argmax + at) >= samples) return false;",
        "if (read_once(argmax + at) > samples) return false;",
        "`<=` for `<`: the number after a bin's last sample passes",
        "tests/arguments",
    ),
    Fault(
        "call: copy of boxes",
        "roipool/_cpu.pyx",
        "    return in_c_order(array, dtype, cnp.NPY_ARRAY_ENSURECOPY)",
        "    return in_c_order(array, dtype, 0)",
        "boxes are used where they are, though other threads may change them",
        "tests/engines/test_races.py",
    ),
    Fault(
        "call: no images",
        "roipool/_cpu.pyx",
        "    if len(features[0]) == 0:  # no images\n        fill(out, pooling.empty_value)\n",
        "",
        "without images the result is not written",
        "tests/engines/test_robustness.py",
    ),
    Fault(
        "levels: boxes of no map",
        "roipool/_cpu.pyx",
        "    if regions.levels is not None and sum(",
        "    if len(parts) > 1 and sum(",
        "of a pyramid of one map, bins of boxes of no map are not written",
        "tests/ops/test_multilevel_roi_align.py",
    ),
    Fault(
        "levels: rows of boxes",
        f"{KERNELS}/cpu/job.h",
        "return job.box_row ? job.box_row[box] : box;",
        "return box;",
        "a level's boxes fill the first rows, not their own",
        "tests/ops/test_multilevel_roi_align.py",
    ),
    Fault(
        "levels: the level of a task",
        f"{KERNELS}/cpu/call.h",
        "while (number < call.levels[level].*first) --level;",
        "while (number <= call.levels[level].*first) --level;",
        "the first box or task of a level goes to the one before",
        "tests/ops/test_multilevel_roi_align.py",
    ),
    Fault(
        "levels: scratch memory",
        f"{KERNELS}/cpu/call.h",
        "call->scratch_bytes = maximum(call->scratch_bytes, level.job.scratch_bytes);",
        "call->scratch_bytes = level.job.scratch_bytes;",
        "the last level's scratch memory serves all",
        "tests/ops/test_multilevel_roi_align.py",
    ),
]

PYTHON = [
    Fault(
        "arguments: highest argmax",
        "roipool/_arguments.py",
        "if low < -1 or high >= limit:",
        "if low < -1 or high > limit:",
        "`>` for `>=`: a cell after the last passes",
        "tests/arguments tests/ops",
    ),
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
        "arguments: arrays per image",
        "roipool/_arguments.py",
        "    if len(rois) != images:",
        "    if len(rois) > images:",
        "`>` for `!=`: images without an array of boxes pass",
        "tests/arguments",
    ),
    Fault(
        "arguments: byte order",
        "roipool/_arguments.py",
        'return library.readable(array, dtype if dtype.isnative else dtype.newbyteorder("="))',
        "return library.readable(array, dtype)",
        "bytes are not swapped",
        "tests/arguments tests/ops",
    ),
    Fault(
        "arguments: least sampling ratio",
        "roipool/_arguments.py",
        "if not (0 <= rows <= MAX_SAMPLING_RATIO and 0 <= columns <= MAX_SAMPLING_RATIO):",
        "if not (rows <= MAX_SAMPLING_RATIO and columns <= MAX_SAMPLING_RATIO):",
        "a missing check: a negative sampling ratio passes",
        "tests/arguments",
    ),
    Fault(
        "pooling: out",
        "roipool/_pooling.py",
        "            plain[...] = result",
        "            pass",
        "an out that engines cannot fill is not filled",
        "tests/arguments tests/ops",
    ),
    Fault(
        "pooling: cells of a map",
        "roipool/_pooling.py",
        "limit = cells(input_shape, layout)",
        'limit = cells(input_shape, "NCHW")',
        "the wrong axes: cells of an NHWC map are counted as of NCHW",
        "tests/arguments tests/ops",
    ),
    Fault(
        "pooling: cells of a plan's map",
        "roipool/_pooling.py",
        "cells(input_shape, pooling.layout) if",
        'cells(input_shape, "NCHW") if',
        "the wrong axes: cells of an NHWC map are counted as of NCHW",
        "tests/compat",
        equivalent="Only `compat.caffe` asks for the gradient of cells by a plan, and its maps are "
        "NCHW.",
    ),
    Fault(
        "arrays: byte order of out",
        "roipool/_arrays/_numpy.py",
        "flags.c_contiguous and flags.aligned and out.dtype.isnative",
        "flags.c_contiguous and flags.aligned",
        "results are written in native order into an out that is not",
        "tests/arguments tests/ops",
    ),
    Fault(
        "caffe: sign of the scale",
        "roipool/compat/caffe.py",
        'conventions.float32_number("scale_pred", abs(number))',
        'conventions.float32_number("scale_pred", number)',
        "a negative scale is taken as it is",
        "tests/compat",
    ),
    Fault(
        "chainer: half to even",
        "roipool/compat/chainer.py",
        "rounded = check.swap_xy(conventions.library_of(table).xp().rint(table * scale))",
        "rounded = check.swap_xy(conventions.library_of(table).xp().floor(table * scale + 0.5))",
        "half up for half to even",
        "tests/compat",
    ),
    Fault(
        "detectron2: rounded boxes",
        "roipool/compat/detectron2.py",
        "rounded = check.cast(check.number_array(form.boxes, rois), dtype)",
        "rounded = check.number_array(form.boxes, rois)",
        "boxes are not rounded to the maps' type",
        "tests/compat/test_rules.py",
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
        "mmcv: skipped boxes",
        "roipool/compat/mmcv.py",
        "((extent[:, 0] <= 0) | (extent[:, 1] <= 0))",
        "((extent[:, 0] < 0) | (extent[:, 1] < 0))",
        "`<` for `<=`: argmax of a box without extent",
        "tests/compat",
    ),
    Fault(
        "mxnet: planes",
        "roipool/compat/mxnet.py",
        "return (first * (shape[2] * shape[3]))[:, :, None, None]",
        "return (first * (shape[2] * shape[2]))[:, :, None, None]",
        "the wrong stride: planes of height by height",
        "tests/compat/test_rules.py",
    ),
    Fault(
        "mxnet: parts of position-sensitive pooling",
        "roipool/compat/mxnet.py",
        "slice(first, first + step) for first in range(0, boxes, step)]",
        "slice(first, first + step) for first in range(0, boxes - 1, step)]",
        "off by one: a last part of one box is left out",
        "tests/compat/test_rules.py",
    ),
    Fault(
        "onnx: shift by half a cell",
        "roipool/compat/onnx.py",
        'coordinates == "half_pixel",',
        'coordinates == "output_half_pixel",',
        "the two coordinate modes are exchanged",
        "tests/compat",
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
        "tensorflow: order of the gradient",
        "roipool/compat/tensorflow.py",
        "return check.swap_xy(call.average_backward_boxes(gradient, [maps], regions, pooling))",
        "return call.average_backward_boxes(gradient, [maps], regions, pooling)",
        "x before y in the gradient of boxes",
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
    Fault(
        "roialign_pytorch: last centre",
        "roipool/compat/roialign_pytorch.py",
        "first + spacing * real(cells - 1) / real(size - 1)",
        "first + spacing * real(cells) / real(size - 1)",
        "off by one: cells, not the steps between them",
        "tests/compat",
    ),
]

CUDA = [
    Fault(
        "cuda: batch index",
        f"{KERNELS}/cuda/call.h",
        "return number >= 0 && number < images ? number : -1;",
        "return number >= 0 && number <= images ? number : -1;",
        "`<=` for `<`: an image after the last is read",
        "tests/cuda/test_arrays.py -k emulator",
    ),
    Fault(
        "cuda: begin of entries",
        f"{KERNELS}/cuda/plan.h",
        "minimum(first + atomicAdd(&head.used, wanted), spare)",
        "minimum(atomicAdd(&head.used, wanted), spare)",
        "the entries of columns begin where those of rows do",
        EMULATED,
    ),
    Fault(
        "cuda: columns of a part",
        f"{KERNELS}/cuda/plan.h",
        "if (!vertical && bin >= call.columns.bins)",
        "if (!vertical && bin > call.columns.bins)",
        "`>` for `>=`: a column after the last is planned instead of the first",
        EMULATED,
    ),
    Fault(
        "cuda: level of a tile",
        f"{KERNELS}/cuda/backward_tiles.h",
        "task >= call.levels[number + 1].first_task",
        "task > call.levels[number + 1].first_task",
        "`>` for `>=`: a level's first tile is taken for one of the level before",
        EMULATED,
    ),
    Fault(
        "cuda: last pack",
        f"{KERNELS}/cuda/forward_blocks.h",
        "static_cast<Offset>(call.channels) - pack)) {}",
        "static_cast<Offset>(number) * pack)) {}",
        "a missing clamp: the last pack of channels reaches beyond them",
        EMULATED,
    ),
    Fault(
        "cuda: walk through a window",
        f"{KERNELS}/cuda/call.h",
        "    if (column < width) return;",
        "    if (column <= width) return;",
        "`<=` for `<`: a column beyond the window",
        EMULATED,
    ),
    Fault(
        "cuda: tile at the border",
        f"{KERNELS}/cuda/backward_tiles.h",
        "tile.right = minimum(tile.left + columns, level.columns);",
        "tile.right = tile.left + columns;",
        "a missing clamp: the last tile is as wide as the others",
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
        "cuda: the last bin of a hit",
        f"{KERNELS}/cuda/backward_tile_bins.h",
        "if (shared.bins_up_to[middle] > bin) {",
        "if (shared.bins_up_to[middle] >= bin) {",
        "`>=` for `>`: the first bin of a hit is taken from behind the last one of the hit before",
        EMULATED,
    ),
    Fault(
        "cuda: last cell of a run",
        f"{KERNELS}/cuda/unpool.cu",
        "const bool is_inside = (cell < cells) & (i * warp_size < left);",
        "const bool is_inside = (cell <= cells) & (i * warp_size < left);",
        "`<=` for `<`: a cell beyond the run",
        "tests/cuda/test_sizes.py -k emulator",
    ),
    Fault(
        "cuda: bins in a plan",
        "roipool/_cuda/launch.py",
        "    cells = size + 4 * bins + 8\n",
        "    cells = size + 8\n",
        "the bound forgets that neighbouring bins share cells",
        "tests/cuda/test_decisions.py -k plans_fit",
    ),
    Fault(
        "cuda: margin of a plan",
        "roipool/_cuda/launch.py",
        "    cells = size + 4 * bins + 8\n",
        "    cells = size + bins\n",
        "the bound without its margin",
        "tests/cuda/test_decisions.py -k plans_fit",
        equivalent="Plans still fit. Neighbouring bins share two cells at most: fewer taps than "
        "`size + 2 * bins`. Samples inside the map are half a cell apart at least, and rounding of "
        "far coordinates adds half as many as there are bins at most, because a grid has at most "
        "2**22 samples of a bin. test_plans_fit_into_their_bound measures plans of such boxes.",
    ),
    Fault(
        "cuda: last tiles",
        "roipool/_cuda/partition.py",
        "tiles = -(-level.rows // rows) * -(-level.columns // columns)",
        "tiles = -(-level.rows // rows) * (level.columns // columns)",
        "rounded down: the last tile of a row is left out",
        "tests/cuda/test_sizes.py -k emulator",
    ),
]

FAULTS = [*DEFINITIONS, *PLANS, *ENGINES, *CYTHON, *PYTHON, *CUDA]
