#include "core/memory_cuda.h"

#include <fmt/format.h>

#include "base/ceil_div.h"
#include "core/check_cuda.h"
#include "core/device_library.h"
#include "quire/error.h"

namespace quire {
namespace {

// cudaMalloc's alignment.
constexpr size_t kPieceAlignment = 256;

}  // namespace

CudaMemory::CudaMemory(int index, size_t bytes) : index_(index), size_(bytes), uploader_(index) {
  check_cuda(cudaSetDevice(index), "selecting the device");
  void* memory = nullptr;
  const cudaError_t status = cudaMalloc(&memory, bytes);
  if (status == cudaErrorMemoryAllocation) {
    throw OutOfDeviceMemory(fmt::format(
        "cuda:{} has not the {:.2f} GiB of free memory that the engine planned to take; "
        "another program took some just now. End it, or lower --gpu-memory-utilization.",
        index, static_cast<double>(bytes) / (1 << 30)));
  }
  check_cuda(status, "allocating the memory of a rank");
  data_ = static_cast<std::byte*>(memory);
  check_cuda(cudaMemset(data_, 0, bytes), "clearing the memory of a rank");
}

CudaMemory::~CudaMemory() {
  cudaFree(data_);  // what fails here has failed before
}

std::byte* CudaMemory::take(size_t bytes) {
  const size_t rounded = round_up(bytes, kPieceAlignment);
  if (rounded > size_ - taken_) {
    throw Error(fmt::format(
        "cuda:{}: {} bytes are wanted, but of the {} that were planned {} are taken; the plan is "
        "wrong, which is an error of quire's.",
        index_, bytes, size_, taken_));
  }
  std::byte* piece = data_ + taken_;
  taken_ += rounded;
  return piece;
}

void CudaMemory::upload(std::byte* to, size_t bytes,
                        const std::function<void(std::byte* from)>& fill) {
  uploader_.upload(to, bytes, fill);
}

void CudaMemory::finish_uploads() {
  uploader_.finish();
}

void CudaMemory::download(void* to, const std::byte* from, size_t bytes) {
  check_cuda(cudaSetDevice(index_), "selecting the device");
  check_cuda(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost), "copying from the device");
}

}  // namespace quire
