// The boxes of pointwise definitions; included by points.h.

namespace roipool {

typedef Region<Value> PointRegion;

// The part of a region that all boxes of a map share.
__device__ inline Region<Value> common_region(const Call& call, const Level& level) {
  Region<Value> region = {};
  region.scale = static_cast<Value>(level.scale);
  region.rows = level.rows;
  region.columns = level.columns;
  region.bins_down = static_cast<int>(call.rows.bins);
  region.bins_across = static_cast<int>(call.columns.bins);
  region.sampling_down = call.rows.sampling;
  region.sampling_across = call.columns.sampling;
  region.aligned = call.aligned != 0;
  region.bottom = region.rows;
  region.right = region.columns;
  return region;
}

// The region of a box, and the cells that it can read.
__device__ inline PointRegion region_of_box(const Boxes& boxes, const Call& call, wide_int box,
                                            wide_int image) {
  const Level& level = call.levels[level_of_image(call, image)];
  PointRegion region =
      region_of_box(common_region(call, level), boxes.corners + box * call.box_stride,
                    call.coordinate_stride, call.angle_scale);
  ROIPOOL_JOIN(ROIPOOL_DEFINITION, _reach)(&region);
  return region;
}

template <typename Sink>
__device__ inline void visit_bin_of_region(const Region<Value>& region, wide_int bin, Sink& sink) {
  ROIPOOL_DEFINITION(region, static_cast<int>(bin), static_cast<int>(bin) + 1, sink);
}

}  // namespace roipool
