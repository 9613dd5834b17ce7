// The evaluation of any definition by its number. By default it includes them all, so that who
// includes this is compiled again with each change of one; else ROIPOOL_EVALUATED(name) is a
// function template that is compiled elsewhere (cpu/evaluate.h).
#pragma once
#include "definitions.h"
#include "region.h"
#ifndef ROIPOOL_EVALUATED
#include "crop_and_resize.h"
#include "deform_roi_pool.h"
#include "deformable_ps_roi_pool.h"
#include "garden_crop.h"
#include "precise_roi_pool.h"
#include "roi_align.h"
#include "roi_align_rotated.h"
#include "roi_pool.h"
#include "step_align.h"
#define ROIPOOL_EVALUATED(name) name
#endif

namespace roipool {

// Adds the bins [first_bin, last_bin) along one axis of one box to the sink.
template <typename T, typename Sink>
ROIPOOL_HD void visit_bins(Definition definition, const Axis<T>& axis, int first_bin, int last_bin,
                           Sink& sink) {
  if (axis.size == 0) {
    for (int bin = first_bin; bin < last_bin; ++bin) sink.begin_bin(bin, 0);
    return;
  }
  switch (definition) {
#define ROIPOOL_CASE(name, kind, samples_per_ratio, max_per_cell) \
  case define_##name: ROIPOOL_EVALUATED(name)(axis, first_bin, last_bin, sink); return;
    ROIPOOL_DEFINITIONS(ROIPOOL_CASE)
    ROIPOOL_MOVED_DEFINITIONS(ROIPOOL_CASE)
#undef ROIPOOL_CASE
    default: return;
  }
}

// Adds all bins of one box to the sink, for a pointwise definition.
template <typename T, typename Sink>
ROIPOOL_HD void visit_region(Definition definition, const Region<T>& region, Sink& sink) {
  const int bins = region.bins_down * region.bins_across;
  if (region.rows == 0 || region.columns == 0) {
    for (int bin = 0; bin < bins; ++bin) sink.begin_bin(bin, 0);
    return;
  }
  switch (definition) {
#define ROIPOOL_CASE(name, kind, samples_per_ratio, max_per_cell) \
  case define_##name: ROIPOOL_EVALUATED(name)(region, 0, bins, sink); return;
    ROIPOOL_POINTWISE_DEFINITIONS(ROIPOOL_CASE)
#undef ROIPOOL_CASE
    default: return;
  }
}

}  // namespace roipool
