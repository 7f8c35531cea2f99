#pragma once
// A rank's memory on a GPU: one allocation, handed out piece by piece.
//
// Thread safety: as DeviceMemory says.
#include <cstddef>
#include <functional>

#include "core/device.h"
#include "core/uploader_cuda.h"

namespace quire {

class CudaMemory final : public DeviceMemory {
 public:
  CudaMemory(int index, size_t bytes);
  ~CudaMemory() override;
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;

  std::byte* take(size_t bytes) override;
  void upload(std::byte* to, size_t bytes,
              const std::function<void(std::byte* from)>& fill) override;
  void finish_uploads() override;
  void download(void* to, const std::byte* from, size_t bytes) override;

 private:
  int index_;
  std::byte* data_ = nullptr;
  size_t size_;
  size_t taken_ = 0;
  Uploader uploader_;
};

}  // namespace quire
