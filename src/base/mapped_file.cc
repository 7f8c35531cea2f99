#include "base/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/ceil_div.h"
#include "base/check.h"
#include "quire/error.h"

namespace quire {
namespace {

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() { ::close(fd_); }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

[[noreturn]] void throw_errno(const std::filesystem::path& path, const char* what) {
  const int error = errno;
  throw Error(fmt::format("{}: {}: {}.", path.string(), what, std::strerror(error)));
}

// A descriptor of a regular file and its size. O_NONBLOCK: opening a pipe must not wait for a
// writer.
std::pair<int, size_t> open_regular(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) throw_errno(path, "the file can't be opened");
  struct stat info {};
  if (::fstat(fd, &info) != 0) {
    ::close(fd);
    throw_errno(path, "the file's size can't be read");
  }
  if (!S_ISREG(info.st_mode)) {
    ::close(fd);
    throw Error(
        fmt::format("{}: expected a file, but this is a folder or a device.", path.string()));
  }
  return {fd, static_cast<size_t>(info.st_size)};
}

}  // namespace

MappedFile MappedFile::open(const std::filesystem::path& path) {
  const auto [fd, size] = open_regular(path);
  const FileDescriptor file(fd);
  if (size == 0) return {nullptr, 0};
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (data == MAP_FAILED) throw_errno(path, "the file can't be mapped into memory");
  return {static_cast<const std::byte*>(data), size};
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this != &other) {
    unmap();
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

MappedFile::~MappedFile() {
  unmap();
}

void MappedFile::unmap() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::check_inside(std::span<const std::byte> part) const {
  check(part.empty() || (part.data() >= data_ && part.data() + part.size() <= data_ + size_),
        "the part lies outside the mapped file");
}

// Advice that the system can't follow changes nothing that a caller relies on, so its failure is no
// error.
void MappedFile::will_need(std::span<const std::byte> part) const {
  check_inside(part);
  if (part.empty()) return;
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(part.data()) / page * page;
  const auto end = reinterpret_cast<uintptr_t>(part.data() + part.size());
  ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_WILLNEED);
}

void MappedFile::release(std::span<const std::byte> part) const {
  check_inside(part);
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = round_up(reinterpret_cast<uintptr_t>(part.data()), page);
  const auto end = reinterpret_cast<uintptr_t>(part.data() + part.size()) / page * page;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

std::string read_text_file(const std::filesystem::path& path, size_t max_bytes) {
  const auto [fd, size] = open_regular(path);
  const FileDescriptor file(fd);
  if (size > max_bytes) {
    throw Error(fmt::format("{}: the file has {} bytes; at most {} are read.", path.string(), size,
                            max_bytes));
  }
  std::string text(size, '\0');
  size_t done = 0;
  while (done < size) {
    const ssize_t n = ::read(file.get(), text.data() + done, size - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_errno(path, "the file can't be read");
    if (n == 0) throw Error(fmt::format("{}: the file shrank while it was read.", path.string()));
    done += static_cast<size_t>(n);
  }
  return text;
}

}  // namespace quire
