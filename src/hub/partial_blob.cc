#include "hub/partial_blob.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "base/check.h"
#include "quire/error.h"

namespace quire {
using hub_internal::throw_system_error;
namespace {
constexpr size_t kReadBytes = 1 << 20;
}

PartialBlob::PartialBlob(const HubCache& cache, const RemoteFile& file)
    : cache_(cache),
      file_(file),
      path_(cache.incomplete_blob(file.id)),
      fd_(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666)),
      hash_(file.id.kind, file.size) {
  if (fd_ < 0) throw_system_error(path_, "be opened");
}

PartialBlob::~PartialBlob() {
  ::close(fd_);
}

bool PartialBlob::resume(const std::stop_token& stop) {
  struct stat info {};
  if (::fstat(fd_, &info) != 0) throw_system_error(path_, "be examined");
  if (info.st_size > file_.size) {
    restart();
    return true;
  }
  std::vector<char> buffer(kReadBytes);
  while (size_ < info.st_size) {
    if (stop.stop_requested()) return false;
    const ssize_t read = ::pread(fd_, buffer.data(), buffer.size(), size_);
    if (read < 0 && errno == EINTR) continue;
    if (read <= 0) throw_system_error(path_, "be read");
    hash_.update(std::string_view(buffer.data(), static_cast<size_t>(read)));
    size_ += read;
  }
  return true;
}

void PartialBlob::append(std::string_view bytes) {
  check(static_cast<int64_t>(bytes.size()) <= file_.size - size_, "more bytes than the file has");
  hash_.update(bytes);
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(fd_, bytes.data(), bytes.size(), size_);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw_system_error(path_, "be written");
    size_ += written;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
}

void PartialBlob::restart() {
  if (::ftruncate(fd_, 0) != 0) throw_system_error(path_, "be emptied");
  size_ = 0;
  hash_ = ContentHash(file_.id.kind, file_.size);
}

std::optional<std::string> PartialBlob::finish() {
  check(size_ == file_.size, "the file is not complete");
  const std::string hash = hash_.finish();
  if (hash != file_.id.hex) {
    restart();
    return hash;
  }
  if (::fsync(fd_) != 0) throw_system_error(path_, "be written to the disk");
  const std::filesystem::path blob = cache_.blob(file_.id);
  if (::rename(path_.c_str(), blob.c_str()) != 0) throw_system_error(blob, "be made");
  hub_internal::sync_folder(blob.parent_path());
  return std::nullopt;
}

void PartialBlob::discard() {
  ::unlink(path_.c_str());
}

}  // namespace quire
