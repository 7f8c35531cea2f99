#pragma once
// Memory kept back for threads that must not run out of it.
//
//   MemoryReserve::let_new_use_them();             // once in the process
//   MemoryReserve reserve(16, 1 << 20);
//   const MemoryReserve::User user(&reserve);      // on each of these threads
//
// Where operator new finds no memory on such a thread, a block of the reserve is freed and operator
// new tries again; on other threads it throws std::bad_alloc at once. The blocks are never written
// to, so they take address space but no memory. The allocator has to return freed blocks to the
// system: glibc does so only above a fixed M_MMAP_THRESHOLD.
//
// Thread safety: all but the constructor and the destructor from any thread.
#include <cstddef>
#include <mutex>
#include <vector>

namespace quire {

class MemoryReserve {
 public:
  using Allocate = void* (*)(size_t);

  // `allocate`: like std::malloc; std::free must be able to free its blocks. Throws std::bad_alloc
  // where there is not enough memory for all blocks.
  MemoryReserve(size_t num_blocks, size_t block_bytes, Allocate allocate = nullptr);
  ~MemoryReserve();
  MemoryReserve(const MemoryReserve&) = delete;
  MemoryReserve& operator=(const MemoryReserve&) = delete;

  // Frees a block; false if none was left.
  bool release() noexcept;
  // Allocates freed blocks again, as far as there is memory. Returns whether at least half of all
  // blocks are there.
  bool refill() noexcept;

  // Within its scope the thread may use the reserve, or none if it is null.
  class User {
   public:
    explicit User(MemoryReserve* reserve);
    ~User();
    User(const User&) = delete;
    User& operator=(const User&) = delete;

   private:
    MemoryReserve* const before_;
  };

  // Sets the process's new handler. For programs: a library leaves it as it is.
  static void let_new_use_them();

 private:
  const size_t num_blocks_;
  const size_t block_bytes_;
  const Allocate allocate_;
  std::mutex mutex_;
  std::vector<void*> blocks_;  // has room for all of them
};

}  // namespace quire
