// Boxes whose bins are moved, of definitions that are evaluated for rows and columns apart: the
// samples of a bin lie where both cross. Included by points.h.

namespace roipool {

struct PointRegion {
  Axis<Value> down, across;
  wide_int rows, columns;  // cells of the map
};

__device__ inline Axis<Value> moved_axis(const Boxes& boxes, const Call& call, Direction direction,
                                         wide_int box, wide_int image) {
  Axis<Value> axis = axis_of_box(ends_of_box(boxes, call, direction, box), call, direction, image);
  const wide_int before =
      numbers_of_corners + (direction == down ? call.rows.bins * call.columns.bins : 0);
  axis.offsets = {boxes.corners + box * call.box_stride + before * call.coordinate_stride,
                  call.coordinate_stride, Value(call.offset_factor),
                  static_cast<int>(call.columns.bins)};
  return axis;
}

__device__ inline PointRegion region_of_box(const Boxes& boxes, const Call& call, wide_int box,
                                            wide_int image) {
  const Level& map = call.levels[0];
  return {moved_axis(boxes, call, down, box, image), moved_axis(boxes, call, across, box, image),
          map.rows, map.columns};
}

// Where a moved bin lies along an axis.
template <typename T>
struct MovedSide {
  T start;
  T length;
};
template <typename T>
ROIPOOL_HD MovedSide<T> side_of_moved_bin(Definition definition, const Axis<T>& axis, int bin) {
  if (rounds_boxes(definition)) {
    const CornerGrid<T> grid = corner_grid(axis, rounded_box(axis), bin);
    return {grid.start, grid.bin_length};
  }
  const MovedBin<T> moved = moved_bin(axis, sample_grid(axis), bin);
  return {moved.grid.start + T(moved.number) * moved.grid.bin_length, moved.grid.bin_length};
}

// The cells that a bin can read along an axis, or a few more.
__device__ inline Window cells_of_moved_bin(const Axis<Value>& axis, int bin) {
  const Value slack = Value(sizeof(Value) == 4 ? 1e-5 : 1e-13);
  const MovedSide<Value> side = side_of_moved_bin(definition, axis, bin);
  const Value begin = side.start, end = side.start + side.length;
  if (!(is_finite(begin) && is_finite(end))) return {};
  const Value low = minimum(begin, end), high = maximum(begin, end);
  const Value rest = Value(2) + slack * (magnitude(low) + magnitude(high));
  const wide_int from = clamp(to_wide_int(low - rest), 0, axis.size);
  const wide_int to = clamp(to_wide_int(high + rest) + 1, 0, axis.size);
  if (from >= to) return {};
  return {static_cast<int>(from), static_cast<int>(to)};
}

// How many samples a bin has along an axis.
struct CountedSamples {
  wide_int total = 0;

  __device__ void begin_bin(int, wide_int samples) { total = samples; }
  __device__ void add(wide_int, const Sample<Value>&, const PositionGradient<Value>&) {}
};

__device__ inline wide_int samples_of_bin(const Axis<Value>& axis, int bin) {
  CountedSamples counted;
  visit_bin(axis, bin, counted);
  return counted.total;
}

// Adds the samples where one row of them crosses the columns.
template <typename Sink>
struct CrossedRow {
  wide_int first_number;
  const Sample<Value>& y;
  const PositionGradient<Value>& by_y;
  Sink& sink;

  __device__ void begin_bin(int, wide_int) {}
  __device__ void add(wide_int number, const Sample<Value>& x,
                      const PositionGradient<Value>& by_x) {
    const PointGradient<Value> gradient = {
        {Value(0), by_y.by_low, Value(0), by_y.by_high, Value(0)},
        {by_x.by_low, Value(0), by_x.by_high, Value(0), Value(0)}};
    sink.add(first_number + number, y, x, gradient);
  }
};

// Visits the columns for each row of samples.
template <typename Sink>
struct CrossedRows {
  const Axis<Value>& across;
  int bin;
  wide_int samples_across;
  Sink& sink;

  __device__ void begin_bin(int, wide_int) {}
  __device__ void add(wide_int number, const Sample<Value>& y,
                      const PositionGradient<Value>& by_y) {
    CrossedRow<Sink> row = {number * samples_across, y, by_y, sink};
    visit_bin(across, bin, row);
  }
};

template <typename Sink>
__device__ inline void visit_bin_of_region(const PointRegion& region, wide_int number, Sink& sink) {
  const int bin = static_cast<int>(number);
  const wide_int across = samples_of_bin(region.across, bin);
  sink.begin_bin(bin, samples_of_bin(region.down, bin) * across);
  CrossedRows<Sink> rows = {region.across, bin, across, sink};
  visit_bin(region.down, bin, rows);
}

}  // namespace roipool
