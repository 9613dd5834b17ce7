// The boxes of pointwise definitions; included by points.h.

namespace roipool {

typedef Region<Value> PointRegion;

__device__ inline Region<Value> common_region(const Call& call) {
  Region<Value> region = {};
  region.scale = static_cast<Value>(call.levels[0].scale);
  region.rows = call.levels[0].rows;
  region.columns = call.levels[0].columns;
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
                                            wide_int) {
  PointRegion region = region_of_box(common_region(call), boxes.corners + box * call.box_stride,
                                     call.coordinate_stride, call.angle_scale);
  ROIPOOL_JOIN(ROIPOOL_DEFINITION, _reach)(&region);
  return region;
}

template <typename Sink>
__device__ inline void visit_bin_of_region(const Region<Value>& region, wide_int bin, Sink& sink) {
  ROIPOOL_DEFINITION(region, static_cast<int>(bin), static_cast<int>(bin) + 1, sink);
}

}  // namespace roipool
