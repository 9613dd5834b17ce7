"""How the work of a call is divided among blocks and threads, from its sizes alone."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from roipool._cuda.arguments import CallArguments, Level
from roipool._dtypes import real_dtype
from roipool._request import Pooling

BYTES_OF_HITS = BYTES_OF_LISTED_SAMPLE = 8
BYTES_OF_NUMBER = 4
# Shared memory of a position-sensitive backward: the block's tile (`GroupPlace`); each listed bin
# (`BinOfBox`); two listed boxes for each thread; the cells that a staged bin reads (`Reach`).
BYTES_OF_GROUP_PLACE = 88
BYTES_OF_LISTED_BIN = 12
BYTES_OF_LISTED_BOXES = 2 * BYTES_OF_NUMBER
BYTES_OF_STAGED_REACH = 16


def up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def _power_of_two(number: int) -> int:
    return 1 << max(number - 1, 0).bit_length()


THREADS = 256
WARP = 32
# In a forward, the most packs that a thread computes in turn; in an average of NCHW features, those
# of a warp. With more packs, threads spend less time on their set-up; with fewer, there are more
# threads, which calls with few boxes need.
PACKS_PER_THREAD = 8
PACKS_PER_WARP = 2
# For averages of NCHW features: the fewest rows of bins of a warp; its bytes of shared memory, for
# the sums down the columns of its window; and the number of blocks for which a multiprocessor has
# registers, `min_blocks` in average_forward.cu.
ROWS_PER_WARP = 2
SUMS_PER_WARP = 2**12
BLOCKS_BY_REGISTERS = 4
# Limits per block of a backward: lanes of channels; bytes of sums for each channel of a lane, and
# of staged values of a box, both approximate.
TILE_LANES = WARP
TILE_BYTES = 2**14 + 2**9
STAGE_BYTES = 2**13 + 2**9
# An average's backward, as `Shared` in backward_tile_bins.h: rows and columns of a tile, and warps
# of a block; bins that are staged at once; boxes that each thread tests at once; bytes per thread
# for a bin (the place of its gradients, its taps along both axes) and for a box that reaches the
# tile (its bins, and how many they are).
TILE_SIDE = 8
CHUNK_BINS = WARP
MOST_TESTS = 4
BYTES_OF_BIN = 8 + 2 * 16
BYTES_OF_HIT = 24 + 8
BYTES_OF_PLACE, BYTES_OF_PORTION, BYTES_OF_LISTING = 56, 16, 16
# Size of `Tally`, which is followed by one count per tile and per portion.
BYTES_OF_TALLY = 16
# There are no more portions than tiles, either, so that portions have no more sums than the
# gradient has numbers.
MOST_PORTIONS = 256
# Shared memory of a block; more needs the launch attribute MaxDynamicSharedMemorySize.
SHARED_BYTES = 48 * 2**10
# Limits per block if an argmax may be anywhere: bytes of sums, warps per channel, boxes listed at a
# time. In NHWC, a warp has adjacent channels: fewer blocks are better than fewer warps in each.
RUN_BYTES = {"NCHW": 2**15, "NHWC": 2**16 - 2**10}
MOST_TURNS = 4
LISTED_BOXES = 512
BYTES_OF_OFFSET = 8


class Limits(NamedTuple):
    """Sizes above or below which work is divided differently. Tests lower them."""

    max_blocks: int = 2**31 - 1  # further work is done by the same blocks in turn
    enough_blocks: int = 1280  # enough to fill a GPU; further work goes to the same blocks
    least_blocks: int = 420  # with fewer blocks than this, the rows of bins of a box are divided
    enough_tiles: int = 512  # like enough_blocks, for the larger blocks of an average's backward
    crowd: int = 128  # a tile that more bins read is crowded: several blocks share it
    shared_bytes: int = SHARED_BYTES  # larger plans are in scratch memory
    multiprocessor_bytes: int = 228 * 2**10  # of shared memory: an H100's
    block_bytes: int = 227 * 2**10  # per block, with the attribute MaxDynamicSharedMemorySize


class Sizes(NamedTuple):
    """Everything that a launch depends on, except the arrays."""

    dtype: np.dtype[Any]  # of pooled values, and of features unless these are integers
    boxes: int  # rounded up: a launch sets the real number
    box_strides: tuple[int, ...]  # in bytes, like `index_stride`
    index_type: np.dtype[Any]
    index_stride: int
    pooling: Pooling
    map_shapes: tuple[tuple[int, ...], ...]  # of each level
    limits: Limits = Limits()
    feature_dtype: np.dtype[Any] | None = None  # of integer features; None: `dtype`
    cuts: bool = False  # whether batch indices are cut to whole numbers
    has_narrow_levels: bool = False  # whether numbers of levels are int32, not int64

    @property
    def channels_last(self) -> bool:
        """Whether the layout is NHWC."""
        return self.pooling.layout == "NHWC"

    @property
    def is_of_volumes(self) -> bool:
        """Whether maps are volumes, whose planes follow each other."""
        return self.pooling.definition.depth is not None

    @property
    def is_position_sensitive(self) -> bool:
        """Whether each bin is pooled from channels of its own group of bins."""
        return self.pooling.group_size != (1, 1)

    @property
    def real(self) -> np.dtype[Any]:
        """The dtype of coordinates and sums."""
        return real_dtype(self.dtype)


class Grid(NamedTuple):
    """The blocks of a launch."""

    blocks: int
    threads: tuple[int, ...]  # of a block, along each axis
    shared: int = 0  # bytes of a block


def channel_pack(sizes: Sizes, channels: int, vector_aligned: bool) -> int:
    """Return the number of channels of a bin that one thread computes.

    In NHWC, a thread reads and writes them as one vector of 16 bytes if all arrays are aligned.
    """
    if not sizes.channels_last:
        return 4 if channels >= 4 else 1
    whole = 16 // sizes.dtype.itemsize
    return whole if vector_aligned and channels % whole == 0 else 1


def divide_values(call: CallArguments, sizes: Sizes, pack: int) -> tuple[CallArguments, Grid]:
    """Divide pooled values among the threads of a forward."""
    bins = call.rows.bins * call.columns.bins
    packs = -(-call.channels // pack)
    inner, outer = (packs, bins) if sizes.channels_last else (bins, packs)
    across = min(inner, THREADS)
    down = min(max(THREADS // across, 1), outer)
    call = _divide(call, sizes, outer, down, PACKS_PER_THREAD)
    return call, Grid(call.tasks, (across, down))


def sums_per_warp(sizes: Sizes, widest: int) -> int:
    """Return the bytes of shared memory that a warp of a forward has for its sums.

    They are halved if the shared memory of a multiprocessor has room for fewer blocks than its
    registers, unless the sums of a window need more: those of all its columns take at most
    `widest` bytes.
    """
    half = SUMS_PER_WARP // 2
    of_blocks = BLOCKS_BY_REGISTERS * THREADS // WARP * SUMS_PER_WARP
    is_scarce = sizes.limits.multiprocessor_bytes < of_blocks
    return half if is_scarce and widest <= half else SUMS_PER_WARP


def divide_planes(
    call: CallArguments, sizes: Sizes, pack: int, sums: int
) -> tuple[CallArguments, Grid]:
    """Divide packs of channels among the warps of a forward, and rows of bins if boxes are few.

    A warp has `sums` bytes of shared memory. Each piece of rows plans all columns again, so there
    are no more pieces than the GPU needs.
    """
    packs, bins = -(-call.channels // pack), call.rows.bins
    warps = min(packs, THREADS // WARP)
    call = call._replace(stage=sums // (pack * sizes.real.itemsize))
    call = _divide(call, sizes, packs, warps, PACKS_PER_WARP)
    pieces = max(sizes.limits.least_blocks // call.tasks, 1) if call.tasks else 1
    rows = -(-bins // min(pieces, -(-bins // ROWS_PER_WARP)))
    pieces = -(-bins // rows)
    call = call._replace(
        tasks=call.tasks * pieces, parts=call.parts * pieces, pieces=pieces, piece_rows=rows
    )
    return call, Grid(call.tasks, (WARP, warps), warps * sums)


def _divide(
    call: CallArguments, sizes: Sizes, number: int, at_once: int, max_turns: int
) -> CallArguments:
    """Divide each box's packs or bins into tasks of up to ``max_turns * at_once``.

    A task begins with a plan of its box, whose cost several turns share.
    """
    blocks = call.boxes * -(-number // at_once)
    turns = min(max(blocks // sizes.limits.enough_blocks, 1), max_turns)
    share = min(at_once * turns, number)
    parts = -(-number // share)
    return call._replace(tasks=call.boxes * parts, parts=parts, share=share)


def divide_boxes(call: CallArguments, sizes: Sizes) -> tuple[CallArguments, Grid]:
    """Give each box a block, whose number of threads is a power of two."""
    call, grid = divide_values(call, sizes, 1)
    across, down = map(_power_of_two, grid.threads)
    down = min(down, THREADS // across)
    call = call._replace(parts=1, share=call.parts * call.share)
    return call, Grid(call.boxes, (across, down), 8 * across * down)


def divide_maps(call: CallArguments, sizes: Sizes, staged: int) -> tuple[CallArguments, Grid]:
    """Divide the maps of a backward into tiles; it stages `staged` bytes for each pooled value."""
    call, grid, pitch = _with_sums(call, sizes)
    stage = min(call.rows.bins * call.columns.bins, max(STAGE_BYTES // (pitch * staged), 1))
    call = call._replace(
        stage=stage,
        stage_rows=max(stage // call.columns.bins, 1),
        stage_columns=min(stage, call.columns.bins),
    )
    return call, grid._replace(shared=grid.shared + stage * pitch * staged)


def divide_groups(call: CallArguments, sizes: Sizes) -> tuple[CallArguments, Grid]:
    """Divide the maps of a position-sensitive backward into tiles, each of one group of bins."""
    call, grid, pitch = _with_sums(call, sizes)
    values = pitch + call.tile_rows + call.tile_columns
    staged = values * sizes.real.itemsize + BYTES_OF_STAGED_REACH + BYTES_OF_LISTED_BIN
    stage = min(max(STAGE_BYTES // staged, 1), WARP)
    of_thread = BYTES_OF_LISTED_BIN + BYTES_OF_LISTED_BOXES
    shared = grid.shared + BYTES_OF_GROUP_PLACE + grid.threads[0] * of_thread
    return call._replace(stage=stage), grid._replace(shared=shared + stage * staged)


def _with_sums(call: CallArguments, sizes: Sizes) -> tuple[CallArguments, Grid, int]:
    """Divide maps into tiles with sums in shared memory; also return the pitch of their cells."""
    real, height, width = sizes.real.itemsize, call.height, call.width
    lanes = min(_power_of_two(call.channels), TILE_LANES)
    pitch = lanes + 1 if lanes > 1 else 1
    cells = TILE_BYTES // (pitch * real)
    columns = min(width, 16 if lanes > 8 else 32)
    rows = max(min(height, cells // columns), 1)
    owners = min(_power_of_two(rows), THREADS // WARP)
    threads = max(lanes * owners, WARP)
    sums = up(rows * columns * pitch * real, 8) + threads // WARP * BYTES_OF_HITS
    call = _with_tiles(call, rows, columns, lanes)
    return call, Grid(call.tasks, (threads,), sums), pitch


def _with_tiles(
    call: CallArguments, rows: int, columns: int, lanes: int, pack: int = 1
) -> CallArguments:
    """Return the call with the tiles of all maps as tasks, `pack` channels to a lane."""
    levels, tiles, maps = [], 0, call.images * call.rows.groups * call.columns.groups
    for level in call.levels:
        levels.append(level._replace(first_tile=tiles))
        tiles += maps * tiles_of_rows(call, level, rows) * -(-level.columns // columns)
    return call._replace(
        tasks=tiles * -(-call.channels // (lanes * pack)),
        tiles=tiles,
        levels=tuple(levels),
        lanes=lanes,
        tile_rows=rows,
        tile_columns=columns,
    )


def tiles_of_rows(call: CallArguments, level: Level, rows: int) -> int:
    """Return the number of rows of tiles. In volumes, a tile lies in one plane."""
    if call.volume.plane_rows:
        return call.volume.planes * -(-call.volume.plane_rows // rows)
    return -(-level.rows // rows)


def divide_tiles(
    call: CallArguments, sizes: Sizes, vector_aligned: bool
) -> tuple[CallArguments, Grid, int]:
    """Divide the maps of an average's backward into tiles; also return the channels of a thread.

    With more channels per thread, less work is repeated for other channels, but there are fewer
    blocks. In NHWC, a thread reads and writes them as one vector if all arrays are aligned.
    """
    real, side = sizes.real.itemsize, TILE_SIDE

    def with_pack(pack: int) -> CallArguments:
        return _with_tiles(call, side, side, WARP, pack)

    pack = 1
    if real == 4 and call.channels > WARP:
        is_large = call.channels > 2 * WARP and with_pack(4).tasks >= sizes.limits.enough_tiles
        pack = 4 if is_large else 2
    if sizes.channels_last:
        pack = math.gcd(pack, call.channels) if vector_aligned else 1
    call = with_portions(with_pack(pack), sizes)
    return call, Grid(call.tasks, (side * WARP,), bytes_of_tile(real, pack)), pack


def with_portions(call: CallArguments, sizes: Sizes) -> CallArguments:
    """Return the call with room for portions of crowded tiles.

    Their number depends on neither the layout nor the channels, so the bits of sums do not either.
    """
    crowd, groups = sizes.limits.crowd, call.tasks // call.tiles if call.tiles else 0
    if call.boxes * call.rows.bins * call.columns.bins <= crowd:
        return call
    portions = min(call.tiles, MOST_PORTIONS)
    tally = up(BYTES_OF_TALLY + (call.tiles + portions * groups) * BYTES_OF_NUMBER, 16)
    tasks = (call.tiles + portions) * groups
    return call._replace(tasks=tasks, crowd=crowd, portions=portions, tally_bytes=tally)


def bytes_of_portions(call: CallArguments, real: int, pack: int) -> int:
    """Return the scratch memory of the sums of all portions of crowded tiles."""
    return call.portions * up(call.channels, WARP * pack) * TILE_SIDE**2 * real


def bytes_of_tile(real: int, pack: int) -> int:
    """Return the shared memory of a block of `divide_tiles`."""
    side, bins, threads = TILE_SIDE, CHUNK_BINS, TILE_SIDE * WARP
    weights = 2 * side * (bins + bins + 1)
    gradients = max(bins * (WARP + 1) * pack, threads * (side + 16 // real))
    lists = threads * (BYTES_OF_BIN + BYTES_OF_HIT) + MOST_TESTS * side * BYTES_OF_NUMBER
    of_block = BYTES_OF_PLACE + BYTES_OF_PORTION + BYTES_OF_LISTING
    return (weights + gradients) * real + lists + of_block


def divide_runs(call: CallArguments, sizes: Sizes) -> tuple[CallArguments, Grid, int]:
    """Divide the maps of a backward into runs of cells; also return the channels of a warp.

    If a whole map fits into one run, several warps share its channels, with sums of their own.
    """
    real, cells = sizes.real.itemsize, call.height * call.width
    pack = 2 if sizes.channels_last and real == 4 and call.channels > 1 else 1
    lists = (LISTED_BOXES + 1) * BYTES_OF_OFFSET + LISTED_BOXES // WARP * BYTES_OF_NUMBER
    unused = MOST_TURNS * WARP * real  # one place for each thread
    room = min(RUN_BYTES[sizes.pooling.layout], sizes.limits.block_bytes - lists - unused)
    most_cells = room // (pack * real) - 1
    turns = max(min(most_cells // max(cells, 1), MOST_TURNS), 1)
    threads = turns * WARP
    runs = -(-cells // most_cells)
    share = -(-cells // runs)
    groups = -(-call.channels // pack)
    call = call._replace(tasks=call.images * groups * runs, parts=runs, share=share)
    shared = up((pack * turns * (share | 1) + threads) * real, 2 * real)
    return call, Grid(call.tasks, (threads,), shared + lists), pack
