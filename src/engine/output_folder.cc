#include "engine/output_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "quire/error.h"

namespace quire {
namespace fs = std::filesystem;
namespace {

[[noreturn]] void fail_to_make(const fs::path& path, const std::error_code& error) {
  throw Error(fmt::format("{}: the folder cannot be written: {}.", path.string(), error.message()));
}

void check_is_free(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) {
    if (!fs::is_symlink(fs::symlink_status(path, error))) return;
    throw Error(fmt::format("{}: expected the name of a new folder, and this is a link to nothing.",
                            path.string()));
  }
  if (error) fail_to_make(path, error);
  if (!fs::is_directory(status)) {
    throw Error(
        fmt::format("{}: expected the name of a new folder, and this is a file.", path.string()));
  }
  const bool is_empty = fs::is_empty(path, error);
  if (error) fail_to_make(path, error);
  if (!is_empty) {
    throw Error(fmt::format(
        "{}: the folder is not empty; expected the name of a new one, or of an empty one.",
        path.string()));
  }
}

}  // namespace

OutputFolder::OutputFolder(const fs::path& path) {
  if (path.empty()) throw Error("The folder to write has no name.");
  check_is_free(path);
  std::error_code error;
  path_ = fs::absolute(path, error).lexically_normal();
  if (error) fail_to_make(path, error);
  if (!path_.has_filename()) path_ = path_.parent_path();
  if (fs::exists(path_, error)) path_ = fs::canonical(path_, error);
  if (error) fail_to_make(path, error);
  partial_ =
      path_.parent_path() / fmt::format("{}.{}.partial", path_.filename().string(), getpid());
  const bool is_made = fs::create_directory(partial_, error);
  if (error) fail_to_make(path, error);
  if (!is_made) fail_to_make(partial_, std::make_error_code(std::errc::file_exists));
}

OutputFolder::~OutputFolder() {
  std::error_code ignored;
  if (!partial_.empty()) fs::remove_all(partial_, ignored);
}

void OutputFolder::put_in_place() {
  const int folder = open(partial_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool is_synced = folder >= 0 && syncfs(folder) == 0;
  const std::error_code sync_error(errno, std::generic_category());
  if (folder >= 0) close(folder);
  if (!is_synced) fail_to_make(path_, sync_error);
  check_is_free(path_);
  std::error_code error;
  fs::rename(partial_, path_, error);
  // The folder is complete: it is left where it is.
  const fs::path complete = std::exchange(partial_, {});
  if (error) {
    throw Error(fmt::format("{}: the folder cannot be put there: {}. It is complete as {}.",
                            path_.string(), error.message(), complete.string()));
  }
}

}  // namespace quire
