// A malloc for LD_PRELOAD that finds no memory once: when the counter in the file that
// QUIRE_FAILING_MALLOC_FILE names has counted down to 0. Every malloc, calloc and realloc of the
// process counts, those of its libraries, too. The file holds two numbers of 64 bits: the counter,
// at which negative numbers mean never, and how often it came to that.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

extern "C" void* __libc_malloc(std::size_t size);
extern "C" void* __libc_calloc(std::size_t count, std::size_t size);
extern "C" void* __libc_realloc(void* memory, std::size_t size);

namespace {

constexpr std::size_t kFileBytes = 2 * sizeof(int64_t);
int64_t* numbers = nullptr;

__attribute__((constructor)) void map_file() {
  const char* path = std::getenv("QUIRE_FAILING_MALLOC_FILE");
  const int fd = path == nullptr ? -1 : open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return;
  void* mapped = mmap(nullptr, kFileBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (mapped != MAP_FAILED) numbers = static_cast<int64_t*>(mapped);
}

bool is_to_fail() {
  if (numbers == nullptr || __atomic_load_n(&numbers[0], __ATOMIC_RELAXED) < 0) return false;
  if (__atomic_fetch_sub(&numbers[0], 1, __ATOMIC_RELAXED) != 0) return false;
  __atomic_fetch_add(&numbers[1], 1, __ATOMIC_RELAXED);
  errno = ENOMEM;
  return true;
}

}  // namespace

extern "C" void* malloc(std::size_t size) {
  return is_to_fail() ? nullptr : __libc_malloc(size);
}
extern "C" void* calloc(std::size_t count, std::size_t size) {
  return is_to_fail() ? nullptr : __libc_calloc(count, size);
}
extern "C" void* realloc(void* memory, std::size_t size) {
  return is_to_fail() ? nullptr : __libc_realloc(memory, size);
}
