#pragma once
// Owned device memory, and the arena that activations are cut from.
//
// Thread safety: none needed; each rank owns its own.
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "base/ceil_div.h"
#include "core/device.h"
#include "core/tensor.h"

namespace quire {

// Alignment of every buffer and of every tensor an arena hands out, in bytes: a cache line and an
// AVX-512 register; enough for the widest access of a GPU.
inline constexpr size_t kAlignment = 64;

constexpr size_t align_up(size_t bytes, size_t alignment = kAlignment) {
  return round_up(bytes, alignment);
}

// Zeroed memory. On the CPU the system gives it a page at a time on first use, in huge pages where
// it has them, and it is freed with the object. On a GPU it is a piece of the rank's reservation
// (DeviceMemory) and is freed with that. Throws Error when too little memory is free.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(size_t bytes, const Device& device = {});
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  bool is_mapped_ = false;  // by this object
};

// Hands out tensors from one buffer like a stack: at its end a Scope gives back what was allocated
// since its start. The plan (runner/memory_plan.h) says how large the buffer must be, so running
// out is a programmer error.
class Arena {
 public:
  explicit Arena(Buffer buffer) : buffer_(static_cast<Buffer&&>(buffer)) {}

  // Uninitialised memory.
  Tensor allocate(DType dtype, std::initializer_list<int64_t> shape);
  size_t used() const { return used_; }
  // The most that was ever in use at once.
  size_t peak() const { return peak_; }
  size_t capacity() const { return buffer_.size(); }

  class Scope {
   public:
    explicit Scope(Arena& arena) : arena_(arena), mark_(arena.used_) {}
    ~Scope() { arena_.used_ = mark_; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Arena& arena_;
    size_t mark_;
  };

 private:
  Buffer buffer_;
  size_t used_ = 0;
  size_t peak_ = 0;
};

}  // namespace quire
