#include "cli/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <system_error>
#include <utility>

#include "quire/error.h"

namespace quire::cli {
namespace {

namespace fs = std::filesystem;

std::string last_error() {
  return std::generic_category().message(errno);
}

[[noreturn]] void fail(const fs::path& path, const std::string& why) {
  throw Error(fmt::format("the file {} cannot be written: {}", path.string(), why));
}

bool lies_under(const fs::path& folder, const char* name) {
  return folder == name || folder.string().starts_with(std::string(name) + "/");
}

// Where `path` leads to, with a folder that exists; the file itself may not. The links of its last
// part are followed one by one, as one may lead to a file that is still to be made, and as those of
// /proc lead to what a process has open.
fs::path resolved(const fs::path& path) {
  constexpr int kMostLinks = 40;  // as Linux follows
  fs::path at = path;
  for (int i = 0; i <= kMostLinks; ++i) {
    std::error_code error;
    const fs::path parent = at.parent_path();
    const fs::path folder = fs::canonical(parent.empty() ? "." : parent, error);
    if (error) fail(path, error.message());
    if (lies_under(folder, "/dev") || lies_under(folder, "/proc")) {
      throw Error(
          fmt::format("{}: expected a file, and this is a device's or a process's", path.string()));
    }
    at = folder / at.filename();
    if (!fs::is_symlink(fs::symlink_status(at, error))) return at;
    const fs::path target = fs::read_symlink(at, error);
    if (error) fail(path, error.message());
    at = folder / target;
  }
  fail(path, std::generic_category().message(ELOOP));
}

// The mode of the file `path`; nothing where there is none. Throws Error where it is no regular
// file, or may not be written.
std::optional<mode_t> mode_of(const fs::path& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) {
    if (errno == ENOENT) return std::nullopt;
    fail(path, last_error());
  }
  if (!S_ISREG(status.st_mode)) {
    throw Error(fmt::format("{}: expected a file, and this is none", path.string()));
  }
  if (access(path.c_str(), W_OK) != 0) fail(path, last_error());
  constexpr mode_t kPermissions = 0777;
  return status.st_mode & kPermissions;
}

// A new file beside `target`, under a name that is free; gone with this unless it is put in the
// target's place.
class NewFile {
 public:
  explicit NewFile(const fs::path& target) : target_(target), mode_(mode_of(target)) {
    constexpr int kMostNames = 1000;
    // Only the user may read it: it may replace a file that others cannot read.
    const mode_t mode = mode_ ? 0600 : 0666;
    for (int i = 0; fd_ < 0 && i < kMostNames; ++i) {
      path_ = target.parent_path() / fmt::format(".quire-{}-{}.partial", getpid(), i);
      fd_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
      if (fd_ < 0 && errno != EEXIST) break;
    }
    if (fd_ < 0) fail(target_, last_error());
  }
  ~NewFile() {
    if (fd_ >= 0) close(fd_);
    if (!is_placed_) unlink(path_.c_str());
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(std::string_view text) {
    while (!text.empty()) {
      const ssize_t written = ::write(fd_, text.data(), text.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail(target_, last_error());
      text.remove_prefix(static_cast<size_t>(written));
    }
  }

  void put_in_place() {
    if (mode_ && fchmod(fd_, *mode_) != 0) fail(target_, last_error());
    // Some file systems say only here that there is no room.
    if (close(std::exchange(fd_, -1)) != 0) fail(target_, last_error());
    std::error_code error;
    fs::rename(path_, target_, error);
    if (error) fail(target_, error.message());
    is_placed_ = true;
  }

 private:
  fs::path target_;
  std::optional<mode_t> mode_;  // of what is replaced
  fs::path path_;
  int fd_ = -1;
  bool is_placed_ = false;
};

}  // namespace

OutputFile::OutputFile(const fs::path& path, std::string_view option) {
  try {
    path_ = resolved(path);
    const NewFile probe(path_);
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", option, error.what()));
  }
}

void OutputFile::write(std::string_view text) const {
  NewFile file(path_);
  file.write(text);
  file.put_in_place();
}

}  // namespace quire::cli
