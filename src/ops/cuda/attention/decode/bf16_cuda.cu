#include "ops/cuda/attention/decode/launch.cuh"

namespace quire::ops::cuda {

template bool launch_mma_decode<__nv_bfloat16, false>(CudaStream&, const CudaPagedAttention&);

}  // namespace quire::ops::cuda
