// Definitions, evaluated for the sinks of plans. Each header of definitions has a source file of
// its own in definitions/, so that a change of one compiles little.
#pragma once
#include "../definitions.h"
#include "point_sinks.h"
#ifdef ROIPOOL_PLAYGROUND
#include "../visit_bins.h"  // a single source file
#endif

namespace roipool {

#ifdef ROIPOOL_PLAYGROUND
template <typename T, typename Sink>
inline void evaluate_bins(Definition definition, const Axis<T>& axis, int first_bin, int last_bin,
                          Sink& sink) {
  visit_bins(definition, axis, first_bin, last_bin, sink);
}
template <typename T, typename Sink>
inline void evaluate_region(Definition definition, const Region<T>& region, Sink& sink) {
  visit_region(definition, region, sink);
}
#else

#define ROIPOOL_DECLARE(name, kind, samples_per_ratio, max_per_cell) \
  template <typename T, typename Sink>                               \
  void evaluate_##name(const Axis<T>& axis, int first_bin, int last_bin, Sink& sink);
ROIPOOL_DEFINITIONS(ROIPOOL_DECLARE)
ROIPOOL_MOVED_DEFINITIONS(ROIPOOL_DECLARE)
#undef ROIPOOL_DECLARE

#define ROIPOOL_DECLARE(name, kind, samples_per_ratio, max_per_cell) \
  template <typename T, typename Sink>                               \
  void evaluate_##name(const Region<T>& region, int first_bin, int last_bin, Sink& sink);
ROIPOOL_POINTWISE_DEFINITIONS(ROIPOOL_DECLARE)
#undef ROIPOOL_DECLARE

// Adds the bins [first_bin, last_bin) along one axis of one box to the sink.
template <typename T, typename Sink>
inline void evaluate_bins(Definition definition, const Axis<T>& axis, int first_bin, int last_bin,
                          Sink& sink) {
  if (axis.size == 0) {
    for (int bin = first_bin; bin < last_bin; ++bin) sink.begin_bin(bin, 0);
    return;
  }
  switch (definition) {
#define ROIPOOL_CASE(name, kind, samples_per_ratio, max_per_cell) \
  case define_##name: return evaluate_##name(axis, first_bin, last_bin, sink);
    ROIPOOL_DEFINITIONS(ROIPOOL_CASE)
    ROIPOOL_MOVED_DEFINITIONS(ROIPOOL_CASE)
#undef ROIPOOL_CASE
    default: return;
  }
}

// Adds all bins of one box to the sink, for a pointwise definition.
template <typename T, typename Sink>
inline void evaluate_region(Definition definition, const Region<T>& region, Sink& sink) {
  const int bins = region.bins_down * region.bins_across;
  if (region.rows == 0 || region.columns == 0) {
    for (int bin = 0; bin < bins; ++bin) sink.begin_bin(bin, 0);
    return;
  }
  switch (definition) {
#define ROIPOOL_CASE(name, kind, samples_per_ratio, max_per_cell) \
  case define_##name: return evaluate_##name(region, 0, bins, sink);
    ROIPOOL_POINTWISE_DEFINITIONS(ROIPOOL_CASE)
#undef ROIPOOL_CASE
    default: return;
  }
}

// For the file of a definition: compiles it for all sinks.
#define ROIPOOL_EVALUATE_FOR(name, Input, T, Sink) \
  template void evaluate_##name(const Input<T>&, int, int, Sink&);
#define ROIPOOL_EVALUATE_IN(name, T)                                           \
  ROIPOOL_EVALUATE_FOR(name, Axis, T, BinByBin<CountedBins<TapCounter<T>>>)    \
  ROIPOOL_EVALUATE_FOR(name, Axis, T, BinByBin<CountedBins<SampleCounter<T>>>) \
  ROIPOOL_EVALUATE_FOR(name, Axis, T, BinByBin<PlainTapBins<T>>)               \
  ROIPOOL_EVALUATE_FOR(name, Axis, T, BinByBin<SlopedTapBins<T>>)              \
  ROIPOOL_EVALUATE_FOR(name, Axis, T, BinByBin<SampleBins<T>>)
#define ROIPOOL_EVALUATE(name)                                                         \
  template <typename T, typename Sink>                                                 \
  void evaluate_##name(const Axis<T>& axis, int first_bin, int last_bin, Sink& sink) { \
    name(axis, first_bin, last_bin, sink);                                             \
  }                                                                                    \
  ROIPOOL_EVALUATE_IN(name, float)                                                     \
  ROIPOOL_EVALUATE_IN(name, double)

// The same for a pointwise one.
#define ROIPOOL_EVALUATE_POINTS_IN(name, T)                             \
  ROIPOOL_EVALUATE_FOR(name, Region, T, WatchedBins<PointCounts<T>>)    \
  ROIPOOL_EVALUATE_FOR(name, Region, T, WatchedBins<PlainPointBins<T>>) \
  ROIPOOL_EVALUATE_FOR(name, Region, T, WatchedBins<SlopedPointBins<T>>)
#define ROIPOOL_EVALUATE_POINTS(name)                                                      \
  template <typename T, typename Sink>                                                     \
  void evaluate_##name(const Region<T>& region, int first_bin, int last_bin, Sink& sink) { \
    name(region, first_bin, last_bin, sink);                                               \
  }                                                                                        \
  ROIPOOL_EVALUATE_POINTS_IN(name, float)                                                  \
  ROIPOOL_EVALUATE_POINTS_IN(name, double)
#endif

}  // namespace roipool
