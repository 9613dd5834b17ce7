// ROI align of volumes as forks write it for a GPU, as a loop on a CPU: one pooled value after the
// other, eight cells for each of its samples. `volumes.py` compares roipool with it.
#include <algorithm>
#include <cmath>

namespace {

struct Volumes {
  float* cells;
  int channels, size[3];  // depth, rows, columns

  float* of(long image, int channel) const {
    return cells + (image * channels + channel) * size[0] * size[1] * size[2];
  }
};

// Calls visit(cell, weight) for the cells of a sample, if it is inside.
template <typename Visit>
inline void visit_corners(const Volumes& volumes, float* volume, const float* position,
                          Visit visit) {
  int low[3], high[3];
  float share[3];
  for (int axis = 0; axis < 3; ++axis) {
    const int size = volumes.size[axis];
    if (!(position[axis] >= -1 && position[axis] <= size)) return;
    const float held = std::max(position[axis], 0.0f);
    low[axis] = std::min(static_cast<int>(held), size - 1);
    high[axis] = std::min(low[axis] + 1, size - 1);
    share[axis] = low[axis] < size - 1 ? held - low[axis] : 0;
  }
  for (int corner = 0; corner < 8; ++corner) {
    const bool deep = corner & 4, down = corner & 2, wide = corner & 1;
    const int z = deep ? high[0] : low[0], y = down ? high[1] : low[1];
    const int x = wide ? high[2] : low[2];
    const float weight = (deep ? share[0] : 1 - share[0]) * (down ? share[1] : 1 - share[1]) *
                         (wide ? share[2] : 1 - share[2]);
    visit(volume + (static_cast<long>(z) * volumes.size[1] + y) * volumes.size[2] + x, weight);
  }
}

template <bool Backward>
void align(const Volumes& volumes, const float* rois, int boxes, int bins, int ratio,
           float* pooled) {
  for (long index = 0; index < static_cast<long>(boxes) * volumes.channels; ++index) {
    const float* roi = rois + 7 * (index / volumes.channels);
    float* volume = volumes.of(static_cast<long>(roi[0]), index % volumes.channels);
    float start[3], length[3];
    int count[3];
    for (int axis = 0; axis < 3; ++axis) {
      start[axis] = roi[3 - axis] - 0.5f;
      length[axis] = (roi[6 - axis] - 0.5f - start[axis]) / bins;
      count[axis] = ratio > 0 ? ratio : static_cast<int>(std::ceil(length[axis]));
    }
    const float samples = std::max(count[0] * count[1] * count[2], 1);
    for (int bin = 0; bin < bins * bins * bins; ++bin) {
      float& value = pooled[index * bins * bins * bins + bin];
      const int number[3] = {bin / (bins * bins), bin / bins % bins, bin % bins};
      float sum = 0, gradient = value / samples;
      for (int z = 0; z < count[0]; ++z) {
        for (int y = 0; y < count[1]; ++y) {
          for (int x = 0; x < count[2]; ++x) {
            const int sample[3] = {z, y, x};
            float position[3];
            for (int axis = 0; axis < 3; ++axis) {
              position[axis] = start[axis] + number[axis] * length[axis] +
                               (sample[axis] + 0.5f) * length[axis] / count[axis];
            }
            visit_corners(volumes, volume, position, [&](float* cell, float weight) {
              if (Backward) {
                *cell += weight * gradient;
              } else {
                sum += weight * *cell;
              }
            });
          }
        }
      }
      if (!Backward) value = sum / samples;
    }
  }
}

}  // namespace

// `volumes` (N, C, D, H, W) has `sizes` C, D, H, W; `pooled` is (K, C, bins, bins, bins).
extern "C" void forward(float* volumes, const int* sizes, const float* rois, int boxes, int bins,
                        int ratio, float* pooled) {
  align<false>({volumes, sizes[0], {sizes[1], sizes[2], sizes[3]}}, rois, boxes, bins, ratio,
               pooled);
}

extern "C" void backward(float* volumes, const int* sizes, const float* rois, int boxes, int bins,
                         int ratio, float* pooled) {
  align<true>({volumes, sizes[0], {sizes[1], sizes[2], sizes[3]}}, rois, boxes, bins, ratio,
              pooled);
}
