#include "hub/hub_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <thread>
#include <utility>

#include "base/mapped_file.h"
#include "hub/model_path.h"
#include "quire/error.h"

namespace quire {
namespace fs = std::filesystem;
using hub_internal::sync_folder;
using hub_internal::throw_system_error;
namespace {

constexpr auto kLockInterval = std::chrono::milliseconds(100);
constexpr size_t kMaxRefBytes = 1024;

// https://bford.info/cachedir/: backups leave out a folder with this file.
constexpr std::string_view kCacheTag =
    "Signature: 8a477f597d28d172789f06886806bc55\n"
    "# This file is a cache directory tag: what is here can be downloaded again.\n"
    "# See https://bford.info/cachedir/\n";

void make_folders(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) {
    throw Error(fmt::format("{}: the folder cannot be made: {}.", path.string(), error.message()));
  }
}

bool is_file_of_size(const fs::path& path, int64_t size) {
  std::error_code error;
  return fs::is_regular_file(path, error) &&
         fs::file_size(path, error) == static_cast<uintmax_t>(size) && !error;
}

// Whether the path still names the file that is open: the last holder of the lock may have deleted
// it, and then others lock another file.
bool is_same_file(int fd, const fs::path& path) {
  struct stat opened {};
  struct stat named {};
  return ::fstat(fd, &opened) == 0 && ::stat(path.c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

// Writes a small file so that it is there whole or not at all. `temporary` lies on the same disk,
// and no other process uses it meanwhile.
void write_whole(const fs::path& path, const fs::path& temporary, std::string_view text) {
  const int fd =
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (fd < 0) throw_system_error(temporary, "be written");
  const bool written = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
                       ::fsync(fd) == 0;
  const int error = errno;
  ::close(fd);
  errno = error;
  if (!written) throw_system_error(temporary, "be written");
  if (::rename(temporary.c_str(), path.c_str()) != 0) throw_system_error(path, "be written");
  sync_folder(path.parent_path());
}

// Without these files a folder is not taken for a model at all.
bool marks_a_model(const RemoteFile& file) {
  return file.name == "config.json" || file.name == "tokenizer.json" ||
         file.name.ends_with(".gguf");
}

}  // namespace

void hub_internal::throw_system_error(const fs::path& path, const std::string& what) {
  const int error = errno;
  throw Error(fmt::format("{}: it cannot {}: {}.", path.string(), what, std::strerror(error)));
}

void hub_internal::sync_folder(const fs::path& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) throw_system_error(folder, "be opened");
  const bool synced = ::fsync(fd) == 0 || errno == EINVAL;  // some file systems cannot, nor need to
  const int error = errno;
  ::close(fd);
  errno = error;
  if (!synced) throw_system_error(folder, "be written to the disk");
}

std::optional<FileLock> FileLock::acquire(const fs::path& path, const std::stop_token& stop,
                                          const std::function<void()>& on_wait) {
  bool waited = false;
  while (!stop.stop_requested()) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0664);
    if (fd < 0) throw_system_error(path, "be opened");
    FileLock lock(fd);
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) {
      if (is_same_file(fd, path)) return lock;
      continue;
    }
    if (errno != EWOULDBLOCK && errno != EINTR) throw_system_error(path, "be locked");
    if (!std::exchange(waited, true)) on_wait();
    std::this_thread::sleep_for(kLockInterval);
  }
  return std::nullopt;
}

FileLock::FileLock(FileLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

FileLock::~FileLock() {
  if (fd_ >= 0) ::close(fd_);
}

HubCache::HubCache(const fs::path& root, const std::string& repository)
    : root_(root),
      folder_(root / hub_internal::repository_folder_name(repository)),
      locks_(root / ".locks" / hub_internal::repository_folder_name(repository)) {}

fs::path HubCache::snapshot(const std::string& commit) const {
  return folder_ / "snapshots" / commit;
}

fs::path HubCache::blob(const ContentId& id) const {
  return folder_ / "blobs" / id.hex;
}

fs::path HubCache::incomplete_blob(const ContentId& id) const {
  return folder_ / "blobs" / (id.hex + ".incomplete");
}

fs::path HubCache::lock_file(const std::string& name) const {
  return locks_ / (name + ".lock");
}

fs::path HubCache::ref(const std::string& revision) const {
  return folder_ / "refs" / revision;
}

bool HubCache::has_file(const std::string& commit, const RemoteFile& file) const {
  return is_file_of_size(snapshot(commit) / file.name, file.size);
}

bool HubCache::has_blob(const RemoteFile& file) const {
  return is_file_of_size(blob(file.id), file.size);
}

int64_t HubCache::incomplete_bytes(const RemoteFile& file) const {
  std::error_code error;
  const uintmax_t size = fs::file_size(incomplete_blob(file.id), error);
  return error || size > static_cast<uintmax_t>(file.size) ? 0 : static_cast<int64_t>(size);
}

bool HubCache::has_ref(const std::string& revision, const std::string& commit) const {
  if (revision == commit) return true;
  std::error_code error;
  const fs::path path = ref(revision);
  return fs::is_regular_file(path, error) && fs::file_size(path, error) <= kMaxRefBytes &&
         read_text_file(path, kMaxRefBytes) == commit;
}

void HubCache::prepare() const {
  for (const char* name : {"blobs", "snapshots", "refs"}) make_folders(folder_ / name);
  make_folders(locks_);
}

int64_t HubCache::free_bytes() const {
  struct statvfs info {};
  if (::statvfs(folder_.c_str(), &info) != 0) throw_system_error(folder_, "be examined");
  return static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
}

void HubCache::link(const std::string& commit, const RemoteFile& file) const {
  const fs::path path = snapshot(commit) / file.name;
  if (has_file(commit, file)) return;
  make_folders(path.parent_path());
  const fs::path target = fs::relative(fs::absolute(blob(file.id)).lexically_normal(),
                                       fs::absolute(path.parent_path()).lexically_normal());
  const fs::path temporary = folder_ / "link.incomplete";
  ::unlink(temporary.c_str());
  if (::symlink(target.c_str(), temporary.c_str()) != 0) throw_system_error(temporary, "be made");
  if (::rename(temporary.c_str(), path.c_str()) != 0) throw_system_error(path, "be made");
  sync_folder(path.parent_path());
}

void HubCache::write_ref(const std::string& revision, const std::string& commit) const {
  if (has_ref(revision, commit)) return;
  make_folders(ref(revision).parent_path());
  write_whole(ref(revision), folder_ / "ref.incomplete", commit);
}

bool HubCache::publish(const std::string& revision, const std::string& commit,
                       const std::vector<RemoteFile>& files, const std::stop_token& stop) const {
  const auto lock = FileLock::acquire(lock_file("snapshot"), stop, [] {});
  if (!lock) return false;
  make_folders(snapshot(commit));
  for (const bool last : {false, true}) {
    for (const RemoteFile& file : files) {
      if (marks_a_model(file) == last) link(commit, file);
    }
  }
  sync_folder(folder_ / "snapshots");
  std::error_code error;
  const fs::path tag = root_ / "CACHEDIR.TAG";
  if (!fs::exists(tag, error)) write_whole(tag, folder_ / "tag.incomplete", kCacheTag);
  write_ref(revision, commit);
  return true;
}

}  // namespace quire
