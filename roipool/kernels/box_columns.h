// Columns of a box, by kind. Engines include this: it has no functions.
#pragma once

namespace roipool {

const int numbers_of_corners = 4;  // x1, y1, x2, y2
const int numbers_of_volume = 6;   // x1, y1, z1, x2, y2, z2, of a box of a volume
const int numbers_of_region = 5;   // of a rotated box: centre x and y, width, height, angle
// Columns for each bin of a box whose bins are moved, behind its corners: all offsets by x, then
// those by y.
const int numbers_of_bin = 2;

}  // namespace roipool
