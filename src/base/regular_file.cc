#include "base/regular_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "quire/error.h"

namespace quire {
namespace {

[[noreturn]] void throw_file_errno(const std::filesystem::path& path, const char* what) {
  const int error = errno;
  throw Error(fmt::format("{}: {}: {}.", path.string(), what, std::strerror(error)));
}

bool is_same_time(const timespec& a, const timespec& b) {
  return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

}  // namespace

// O_NONBLOCK: opening a pipe must not wait for a writer.
RegularFile::RegularFile(const std::filesystem::path& path)
    : path_(path), descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (descriptor_ < 0) throw_file_errno(path, "the file can't be opened");
  if (::fstat(descriptor_, &opened_) != 0) {
    ::close(descriptor_);
    throw_file_errno(path, "the file's size can't be read");
  }
  if (!S_ISREG(opened_.st_mode)) {
    ::close(descriptor_);
    throw Error(
        fmt::format("{}: expected a file, but this is a folder or a device.", path.string()));
  }
}

RegularFile::~RegularFile() {
  ::close(descriptor_);
}

void RegularFile::fail(const char* what) const {
  throw_file_errno(path_, what);
}

void RegularFile::read(std::span<std::byte> to) const {
  while (!to.empty()) {
    const ssize_t count = ::read(descriptor_, to.data(), to.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("the file can't be read");
    if (count == 0) {
      throw Error(fmt::format("{}: the file shrank while it was read.", path_.string()));
    }
    to = to.subspan(static_cast<size_t>(count));
  }
}

void RegularFile::check_unchanged() const {
  struct stat now {};
  if (::fstat(descriptor_, &now) != 0) fail("the file's size can't be read");
  if (now.st_size == opened_.st_size && is_same_time(now.st_mtim, opened_.st_mtim)) return;
  throw Error(
      fmt::format("{}: the file was written to while it was read; try again once it is "
                  "complete.",
                  path_.string()));
}

FileBytes read_file_bytes(const std::filesystem::path& path) {
  const RegularFile file(path);
  FileBytes content;
  content.data = std::make_unique_for_overwrite<std::byte[]>(file.size());
  content.size = file.size();
  file.read({content.data.get(), content.size});
  file.check_unchanged();
  return content;
}

}  // namespace quire
