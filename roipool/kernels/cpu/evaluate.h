// Definitions, evaluated for the sinks of plans. Each header of definitions has a source file of
// its own in definitions/, so that a change of one compiles little.
#pragma once
#include "../definitions.h"
#include "point_sinks.h"

#ifdef ROIPOOL_PLAYGROUND
#include "../visit_bins.h"  // a single source file
#else

namespace roipool {

#define ROIPOOL_DECLARED(Input, name)  \
  template <typename T, typename Sink> \
  void evaluate_##name(const Input<T>& input, int first_bin, int last_bin, Sink& sink)

#define ROIPOOL_DECLARE(name, kind, samples_per_ratio, max_per_cell) ROIPOOL_DECLARED(Axis, name);
ROIPOOL_DEFINITIONS(ROIPOOL_DECLARE)
ROIPOOL_MOVED_DEFINITIONS(ROIPOOL_DECLARE)
#undef ROIPOOL_DECLARE

#define ROIPOOL_DECLARE(name, kind, samples_per_ratio, max_per_cell) ROIPOOL_DECLARED(Region, name);
ROIPOOL_POINTWISE_DEFINITIONS(ROIPOOL_DECLARE)
#undef ROIPOOL_DECLARE

}  // namespace roipool

#define ROIPOOL_EVALUATED(name) evaluate_##name
#include "../visit_bins.h"

// For the file of a definition: compiles it for all sinks.
#define ROIPOOL_COMPILE_FOR(Input, name, T, Sink) \
  template void evaluate_##name(const Input<T>&, int, int, Sink&);
#define ROIPOOL_COMPILE(Input, name, SINKS)                                 \
  ROIPOOL_DECLARED(Input, name) { name(input, first_bin, last_bin, sink); } \
  SINKS(name, float)                                                        \
  SINKS(name, double)

#define ROIPOOL_SINKS(name, T)                                                \
  ROIPOOL_COMPILE_FOR(Axis, name, T, BinByBin<CountedBins<TapCounter<T>>>)    \
  ROIPOOL_COMPILE_FOR(Axis, name, T, BinByBin<CountedBins<SampleCounter<T>>>) \
  ROIPOOL_COMPILE_FOR(Axis, name, T, BinByBin<PlainTapBins<T>>)               \
  ROIPOOL_COMPILE_FOR(Axis, name, T, BinByBin<SlopedTapBins<T>>)              \
  ROIPOOL_COMPILE_FOR(Axis, name, T, BinByBin<SampleBins<T>>)
#define ROIPOOL_EVALUATE(name) ROIPOOL_COMPILE(Axis, name, ROIPOOL_SINKS)

// The same for a pointwise one.
#define ROIPOOL_POINT_SINKS(name, T)                                   \
  ROIPOOL_COMPILE_FOR(Region, name, T, WatchedBins<PointCounts<T>>)    \
  ROIPOOL_COMPILE_FOR(Region, name, T, WatchedBins<PlainPointBins<T>>) \
  ROIPOOL_COMPILE_FOR(Region, name, T, WatchedBins<SlopedPointBins<T>>)
#define ROIPOOL_EVALUATE_POINTS(name) ROIPOOL_COMPILE(Region, name, ROIPOOL_POINT_SINKS)

#endif
