#pragma once
// Descriptions of matrices for the tensor copies of compute capability 9.0.
//
// Thread safety: one thread at a time on a stream.
#include <cuda.h>

#include <cstdint>

namespace quire {
class CudaStream;  // core/stream_cuda.h
}

namespace quire::ops::cuda {

// Columns of a box of 16-bit elements: 128 bytes, as wide as its swizzle.
inline constexpr int kTensorBoxColumns = 64;

// A matrix of 16-bit elements, or of bytes, in device memory, aligned to 16 bytes, rows
// `row_stride` elements apart, to be copied in boxes of box_rows rows and 128 bytes of columns, in
// the 128-byte swizzle; what of a box is outside the matrix is zero. Throws Error when the driver
// refuses.
CUtensorMap matrix_tensor_map(CudaStream& stream, CUtensorMapDataType type, const void* matrix,
                              int64_t rows, int64_t columns, int64_t row_stride, int box_rows);

}  // namespace quire::ops::cuda
