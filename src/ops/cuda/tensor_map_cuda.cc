#include "ops/cuda/tensor_map_cuda.h"

#include <fmt/format.h>

#include "core/stream_cuda.h"
#include "quire/error.h"

namespace quire::ops::cuda {

CUtensorMap matrix_tensor_map(CudaStream& stream, CUtensorMapDataType type, const void* matrix,
                              int64_t rows, int64_t columns, int64_t row_stride, int box_rows) {
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
  const cuuint32_t element_bytes = type == CU_TENSOR_MAP_DATA_TYPE_UINT8 ? 1 : 2;
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(row_stride) * element_bytes};
  const cuuint32_t box[] = {kTensorBoxColumns * 2 / element_bytes,
                            static_cast<cuuint32_t>(box_rows)};
  const cuuint32_t steps[] = {1, 1};
  CUtensorMap map = {};
  const CUresult status = stream.encode_tensor_map()(
      &map, type, 2, const_cast<void*>(matrix), sizes, strides, box, steps,
      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS) {
    throw Error(
        fmt::format("CUDA refused the tensor map of a matrix of {} x {} elements, rows {} apart, "
                    "in boxes of {} rows: code {}.",
                    rows, columns, row_stride, box_rows, static_cast<int>(status)));
  }
  return map;
}

}  // namespace quire::ops::cuda
