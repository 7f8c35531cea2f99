#include "base/mapped_file.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <utility>

#include "base/ceil_div.h"
#include "base/check.h"
#include "base/regular_file.h"
#include "quire/error.h"

namespace quire {
MappedFile MappedFile::open(const std::filesystem::path& path) {
  const RegularFile file(path);
  if (file.size() == 0) return {nullptr, 0};
  void* data = ::mmap(nullptr, file.size(), PROT_READ, MAP_PRIVATE, file.descriptor(), 0);
  if (data == MAP_FAILED) file.fail("the file can't be mapped into memory");
  return {static_cast<const std::byte*>(data), file.size()};
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
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  // A mapping begins with a page.
  const auto offset = static_cast<size_t>(part.data() - data_);
  const size_t begin = offset / page * page;
  ::madvise(const_cast<std::byte*>(data_ + begin), offset + part.size() - begin, MADV_WILLNEED);
}

void MappedFile::release(std::span<const std::byte> part) const {
  check_inside(part);
  if (part.empty()) return;
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const auto offset = static_cast<size_t>(part.data() - data_);
  const size_t begin = round_up(offset, page);
  const size_t end = (offset + part.size()) / page * page;
  if (begin < end) ::madvise(const_cast<std::byte*>(data_ + begin), end - begin, MADV_DONTNEED);
}

std::string read_text_file(const std::filesystem::path& path, size_t max_bytes) {
  const RegularFile file(path);
  if (file.size() > max_bytes) {
    throw Error(fmt::format("{}: the file has {} bytes; at most {} are read.", path.string(),
                            file.size(), max_bytes));
  }
  std::string text(file.size(), '\0');
  file.read(std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace quire
