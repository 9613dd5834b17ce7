// What the kernels of roipool are held against: the plain way, a thread for each pooled value, and
// in backwards an atomic addition for each cell that it read. NCHW or NHWC; float32, forwards also
// float16, of which each number is converted as it is read, sums are float32 and rounded once.

struct Half {
  unsigned short bits;
};
typedef YARDSTICK_ELEMENT Element;  // float or Half: what maps and pooled values hold

__device__ inline float number_of(float element) { return element; }
__device__ inline float number_of(Half element) {
  float number;
  asm("cvt.f32.f16 %0, %1;" : "=f"(number) : "h"(element.bits));
  return number;
}
__device__ inline void store(float number, float* element) { *element = number; }
__device__ inline void store(float number, Half* element) {
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(element->bits) : "f"(number));
}

struct Shape {
  int boxes, channels, height, width, bins_down, bins_across;
  int sampling;  // 0: adaptive
  float scale, offset;
  int channels_last;
};

struct Place {
  int box, channel, row, column;
};

__device__ inline Place place_of(const Shape& shape, int value) {
  Place place;
  if (shape.channels_last) {
    place.channel = value % shape.channels;
    value /= shape.channels;
  }
  place.column = value % shape.bins_across;
  value /= shape.bins_across;
  place.row = value % shape.bins_down;
  value /= shape.bins_down;
  if (!shape.channels_last) {
    place.channel = value % shape.channels;
    value /= shape.channels;
  }
  place.box = value;
  return place;
}

// One map and channel: cells are `step` elements apart.
struct Plane {
  int first, step, width;

  __device__ Plane(const Shape& shape, int image, int channel)
      : first(shape.channels_last
                  ? image * shape.height * shape.width * shape.channels + channel
                  : (image * shape.channels + channel) * shape.height * shape.width),
        step(shape.channels_last ? shape.channels : 1),
        width(shape.width) {}
  __device__ int at(int y, int x) const { return first + (y * width + x) * step; }
};

template <class Visit>
__device__ inline void for_each_value(const Shape& shape, Visit visit) {
  const int values = shape.boxes * shape.channels * shape.bins_down * shape.bins_across;
  for (int value = blockIdx.x * blockDim.x + threadIdx.x; value < values;
       value += blockDim.x * gridDim.x) {
    visit(value, place_of(shape, value));
  }
}

// ---- Bilinear samples

// A point's four cells and weights; false outside of the map.
struct Corners {
  int low_y, low_x, high_y, high_x;
  float weights[4];

  __device__ bool find(const Shape& shape, float y, float x) {
    if (y < -1 || y > shape.height || x < -1 || x > shape.width) return false;
    y = y > 0 ? y : 0;
    x = x > 0 ? x : 0;
    low_y = static_cast<int>(y);
    low_x = static_cast<int>(x);
    high_y = low_y + 1;
    high_x = low_x + 1;
    if (low_y >= shape.height - 1) y = low_y = high_y = shape.height - 1;
    if (low_x >= shape.width - 1) x = low_x = high_x = shape.width - 1;
    const float down = y - low_y, along = x - low_x;
    weights[0] = (1 - down) * (1 - along);
    weights[1] = (1 - down) * along;
    weights[2] = down * (1 - along);
    weights[3] = down * along;
    return true;
  }
};

__device__ inline float interpolated(const Corners& corners, const Plane& plane,
                                     const Element* features) {
  return corners.weights[0] * number_of(features[plane.at(corners.low_y, corners.low_x)]) +
         corners.weights[1] * number_of(features[plane.at(corners.low_y, corners.high_x)]) +
         corners.weights[2] * number_of(features[plane.at(corners.high_y, corners.low_x)]) +
         corners.weights[3] * number_of(features[plane.at(corners.high_y, corners.high_x)]);
}

// Visits a bin's points; `visit(y, x, count)`.
template <class Visit>
__device__ inline void for_each_point(const Shape& shape, const float* box, const Place& place,
                                      Visit visit) {
  const float left = box[1] * shape.scale - shape.offset, top = box[2] * shape.scale - shape.offset;
  float width = box[3] * shape.scale - shape.offset - left;
  float height = box[4] * shape.scale - shape.offset - top;
  if (shape.offset == 0) {
    width = width > 1 ? width : 1;
    height = height > 1 ? height : 1;
  }
  const float bin_height = height / shape.bins_down, bin_width = width / shape.bins_across;
  const int down = shape.sampling ? shape.sampling : static_cast<int>(ceilf(bin_height));
  const int across = shape.sampling ? shape.sampling : static_cast<int>(ceilf(bin_width));
  const float count = down * across > 0 ? down * across : 1;
  for (int j = 0; j < down; ++j) {
    const float y = top + place.row * bin_height + (j + 0.5f) * bin_height / down;
    for (int i = 0; i < across; ++i) {
      visit(y, left + place.column * bin_width + (i + 0.5f) * bin_width / across, count);
    }
  }
}

extern "C" __global__ void align_forward(const Element* features, const float* boxes,
                                         Element* output, const Shape shape) {
  for_each_value(shape, [&](int value, const Place& place) {
    const float* box = boxes + 5 * place.box;
    const Plane plane(shape, static_cast<int>(box[0]), place.channel);
    float sum = 0, total = 1;
    for_each_point(shape, box, place, [&](float y, float x, float count) {
      Corners corners;
      total = count;
      if (!corners.find(shape, y, x)) return;
      sum += interpolated(corners, plane, features);
    });
    store(sum / total, output + value);
  });
}

__device__ inline void add_to_corners(const Corners& corners, const Plane& plane, float gradient,
                                      float* maps) {
  atomicAdd(maps + plane.at(corners.low_y, corners.low_x), gradient * corners.weights[0]);
  atomicAdd(maps + plane.at(corners.low_y, corners.high_x), gradient * corners.weights[1]);
  atomicAdd(maps + plane.at(corners.high_y, corners.low_x), gradient * corners.weights[2]);
  atomicAdd(maps + plane.at(corners.high_y, corners.high_x), gradient * corners.weights[3]);
}

extern "C" __global__ void align_backward(const float* gradients, const float* boxes, float* maps,
                                          const Shape shape) {
  for_each_value(shape, [&](int value, const Place& place) {
    const float* box = boxes + 5 * place.box;
    const Plane plane(shape, static_cast<int>(box[0]), place.channel);
    const float gradient = gradients[value];
    for_each_point(shape, box, place, [&](float y, float x, float count) {
      Corners corners;
      if (corners.find(shape, y, x)) add_to_corners(corners, plane, gradient / count, maps);
    });
  });
}

// ---- Crops: one bilinear sample for each value; boxes are y1, x1, y2, x2, normalised

__device__ inline bool point_of_crop(const Shape& shape, const float* box, const Place& place,
                                     Corners& corners) {
  const float down = (box[3] - box[1]) * (shape.height - 1) / (shape.bins_down - 1);
  const float across = (box[4] - box[2]) * (shape.width - 1) / (shape.bins_across - 1);
  const float y = box[1] * (shape.height - 1) + place.row * down;
  const float x = box[2] * (shape.width - 1) + place.column * across;
  if (y < 0 || y > shape.height - 1 || x < 0 || x > shape.width - 1) return false;
  return corners.find(shape, y, x);
}

extern "C" __global__ void crop_forward(const Element* features, const float* boxes,
                                        Element* output, const Shape shape) {
  for_each_value(shape, [&](int value, const Place& place) {
    const float* box = boxes + 5 * place.box;
    const Plane plane(shape, static_cast<int>(box[0]), place.channel);
    Corners corners;
    float sum = 0;
    if (point_of_crop(shape, box, place, corners)) {
      sum = interpolated(corners, plane, features);
    }
    store(sum, output + value);
  });
}

extern "C" __global__ void crop_backward(const float* gradients, const float* boxes, float* maps,
                                         const Shape shape) {
  for_each_value(shape, [&](int value, const Place& place) {
    const float* box = boxes + 5 * place.box;
    const Plane plane(shape, static_cast<int>(box[0]), place.channel);
    Corners corners;
    if (point_of_crop(shape, box, place, corners)) {
      add_to_corners(corners, plane, gradients[value], maps);
    }
  });
}

// ---- Maxima of whole cells

__device__ inline int edge(float value, int first, int cells) {
  const int at = static_cast<int>(value) + first;
  return at < 0 ? 0 : at > cells ? cells : at;
}

extern "C" __global__ void pool_forward(const Element* features, const float* boxes,
                                        Element* output, int* argmax, const Shape shape) {
  for_each_value(shape, [&](int value, const Place& place) {
    const float* box = boxes + 5 * place.box;
    const Plane plane(shape, static_cast<int>(box[0]), place.channel);
    const int left = static_cast<int>(roundf(box[1] * shape.scale));
    const int top = static_cast<int>(roundf(box[2] * shape.scale));
    const int width = static_cast<int>(roundf(box[3] * shape.scale)) - left + 1;
    const int height = static_cast<int>(roundf(box[4] * shape.scale)) - top + 1;
    const float bin_height = static_cast<float>(height > 1 ? height : 1) / shape.bins_down;
    const float bin_width = static_cast<float>(width > 1 ? width : 1) / shape.bins_across;
    const int y0 = edge(floorf(place.row * bin_height), top, shape.height);
    const int y1 = edge(ceilf((place.row + 1) * bin_height), top, shape.height);
    const int x0 = edge(floorf(place.column * bin_width), left, shape.width);
    const int x1 = edge(ceilf((place.column + 1) * bin_width), left, shape.width);
    float most = y1 <= y0 || x1 <= x0 ? 0 : -3.402823466e38f;
    int best = -1;
    for (int y = y0; y < y1; ++y) {
      for (int x = x0; x < x1; ++x) {
        const float cell = number_of(features[plane.at(y, x)]);
        if (cell > most) {
          most = cell;
          best = y * shape.width + x;
        }
      }
    }
    store(most, output + value);
    argmax[value] = best;
  });
}

extern "C" __global__ void pool_backward(const float* gradients, const int* argmax,
                                         const float* boxes, float* maps, const Shape shape) {
  for_each_value(shape, [&](int value, const Place& place) {
    const Plane plane(shape, static_cast<int>(boxes[5 * place.box]), place.channel);
    if (argmax[value] >= 0) {
      atomicAdd(maps + plane.first + argmax[value] * plane.step, gradients[value]);
    }
  });
}
