// A sum over the threads of a block.
#pragma once

namespace roipool {

// Sums one number per thread, always in the same order; the threads are a power of two. `sums` is
// shared memory for a number of each.
__device__ inline double sum_of_block(double mine, double* sums) {
  const int thread = static_cast<int>(threadIdx.x + threadIdx.y * blockDim.x);
  sums[thread] = mine;
  for (int half = static_cast<int>(blockDim.x * blockDim.y) / 2; half > 0; half /= 2) {
    __syncthreads();
    if (thread < half) sums[thread] += sums[thread + half];
  }
  __syncthreads();
  const double sum = sums[0];
  __syncthreads();
  return sum;
}

}  // namespace roipool
