#include "core/buffer.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "quire/error.h"

namespace quire {

Buffer::Buffer(size_t bytes, const Device& device) : size_(bytes) {
  if (bytes == 0) return;
  if (device.memory != nullptr) {
    data_ = device.memory->take(bytes);
    return;
  }
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw Error(
        fmt::format("The system refused {:.1f} MiB of memory; close other programs or ask for "
                    "less (see `quire plan`).",
                    static_cast<double>(bytes) / (1 << 20)));
  }
  // Fewer TLB misses when weights are streamed; only advice, so its failure changes nothing.
  (void)madvise(memory, bytes, MADV_HUGEPAGE);
  data_ = static_cast<std::byte*>(memory);
  is_mapped_ = true;
}

Buffer::~Buffer() {
  if (is_mapped_) munmap(data_, size_);
}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      is_mapped_(std::exchange(other.is_mapped_, false)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(is_mapped_, other.is_mapped_);
  return *this;
}

Tensor Arena::allocate(DType dtype, std::initializer_list<int64_t> shape) {
  Tensor tensor(buffer_.data() + used_, dtype, shape);
  used_ += align_up(static_cast<size_t>(tensor.num_elements()) * size_of(dtype));
  check(used_ <= buffer_.size(), "the activation arena is smaller than the plan said");
  peak_ = std::max(peak_, used_);
  return tensor;
}

}  // namespace quire
