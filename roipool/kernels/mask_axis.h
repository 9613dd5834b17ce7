// Where the pixels of a picture lie on a mask that is pasted into a box of it, along one axis.
#pragma once
#include "config.h"

namespace roipool {

enum PasteRule {
  paste_faded,   // bilinear; cells outside are 0, so that masks fade out half a cell beyond the box
  paste_cut,     // the same, but nothing beyond the pixels whose middles are in the box
  paste_resized  // as a picture with a frame of zeros, resized to a box of whole pixels
};

// One axis of a mask and its box.
template <typename T>
struct MaskAxis {
  T low;  // the ends of the box
  T high;
  wide_int cells;
  wide_int frame;  // cells of zeros on both sides of a resized mask
  PasteRule rule;
};

// A pixel between a cell and the next one, whose share of the value is below 1. Cells that do not
// exist are 0.
template <typename T>
struct PixelPlace {
  wide_int cell;
  T share;
};

// Pixels [begin, end).
struct PixelRange {
  wide_int begin;
  wide_int end;
};

// False for a box without length, and for one that is not finite.
template <typename T>
ROIPOOL_HD bool has_pixels(const MaskAxis<T>& axis) {
  return axis.high > axis.low && is_finite(axis.high - axis.low) && axis.cells > 0;
}

// The middle of a pixel as a part of the box.
template <typename T>
ROIPOOL_HD T part_of_box(const MaskAxis<T>& axis, wide_int pixel) {
  return (T(pixel) + T(0.5) - axis.low) / (axis.high - axis.low);
}

// The middle of a pixel in cells; it rises with the pixel. The operations, and their order, are
// those of grid_sample for coordinates from -1 to 1, or of resizing.
template <typename T>
ROIPOOL_HD T position_of_pixel(const MaskAxis<T>& axis, wide_int pixel) {
  if (axis.rule == paste_resized) {
    const T step = T(axis.cells + 2 * axis.frame) / (axis.high - axis.low);
    const T position = step * (T(pixel) - axis.low + T(0.5)) - T(0.5);
    return maximum(position, T(0));
  }
  const T normalised = part_of_box(axis, pixel) * T(2) - T(1);
  return ((normalised + T(1)) * T(axis.cells) - T(1)) / T(2);
}

// The place of a pixel on which the mask has values.
template <typename T>
ROIPOOL_HD PixelPlace<T> place_of_pixel(const MaskAxis<T>& axis, wide_int pixel) {
  const T position = position_of_pixel(axis, pixel);
  const T below = floor_of(position);
  const PixelPlace<T> place = {to_wide_int(below), position - below};
  if (axis.rule != paste_resized) return place;
  const wide_int last = axis.cells + 2 * axis.frame - 1;
  if (place.cell >= last) return {last - axis.frame, T(0)};
  return {place.cell - axis.frame, place.share};
}

// The number of pixels of [0, extent) that lie before a position.
template <typename T>
ROIPOOL_HD wide_int pixels_before(const MaskAxis<T>& axis, T position, wide_int extent) {
  wide_int low = 0, high = extent;
  while (low < high) {
    const wide_int middle = low + (high - low) / 2;
    if (position_of_pixel(axis, middle) < position) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// The pixels whose middles are in the box.
template <typename T>
ROIPOOL_HD PixelRange pixels_in_box(const MaskAxis<T>& axis, wide_int extent) {
  return {clamp(to_wide_int(ceil_of(axis.low - T(0.5))), 0, extent),
          clamp(to_wide_int(ceil_of(axis.high - T(0.5))), 0, extent)};
}

// The pixels of [0, extent) on which the mask has values.
template <typename T>
ROIPOOL_HD PixelRange pixels_of_mask(const MaskAxis<T>& axis, wide_int extent) {
  if (!has_pixels(axis)) return {0, 0};
  const PixelRange inside = pixels_in_box(axis, extent);
  if (axis.rule == paste_resized) return inside;
  const PixelRange faded = {pixels_before(axis, T(-1), extent),
                            pixels_before(axis, T(axis.cells), extent)};
  if (axis.rule == paste_faded) return faded;
  return {maximum(faded.begin, inside.begin), minimum(faded.end, inside.end)};
}

// Whether a pixel is one of them.
template <typename T>
ROIPOOL_HD bool is_on_mask(const MaskAxis<T>& axis, wide_int pixel) {
  if (!has_pixels(axis)) return false;
  const bool is_inside =
      T(pixel) >= axis.low - T(0.5) && T(pixel) < axis.high - T(0.5);  // as pixels_in_box
  if (axis.rule == paste_resized) return is_inside;
  const T position = position_of_pixel(axis, pixel);
  return position >= T(-1) && position < T(axis.cells) && (axis.rule == paste_faded || is_inside);
}

// The value between two others; that of a share of 0 does not read the second. For a given pair it
// rises or falls with the share, rounding included.
template <typename T>
ROIPOOL_HD T value_between(T first, T second, T share) {
  return share > T(0) ? first + share * (second - first) : first;
}

}  // namespace roipool
