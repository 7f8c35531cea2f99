#include "engine/output_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "quire/error.h"

namespace quire {
namespace fs = std::filesystem;
namespace {

[[noreturn]] void fail_to_make(const fs::path& path, const std::error_code& error) {
  throw Error(fmt::format("{}: the folder cannot be written: {}.", path.string(), error.message()));
}

// Whether `path` is a folder; it must then be empty except for `ignored`. Throws Error where it can
// be neither made nor filled.
bool check_is_free(const fs::path& path, const fs::path& ignored = {}) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) {
    if (!fs::is_symlink(fs::symlink_status(path, error))) return false;
    throw Error(fmt::format("{}: expected the name of a new folder, and this is a link to nothing.",
                            path.string()));
  }
  if (error) fail_to_make(path, error);
  if (!fs::is_directory(status)) {
    throw Error(
        fmt::format("{}: expected the name of a new folder, and this is a file.", path.string()));
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(path, error)) {
    if (entry.path().filename() == ignored) continue;
    throw Error(fmt::format(
        "{}: the folder is not empty, it has {}; expected the name of a new one, or of an empty "
        "one.",
        path.string(), entry.path().filename().string()));
  }
  if (error) fail_to_make(path, error);
  return true;
}

// Makes a folder PREFIX.PID.partial, or PREFIX.PID.N.partial where a process that had this number
// and was killed has left one.
fs::path make_partial(const fs::path& folder, const std::string& prefix) {
  for (int attempt = 1;; ++attempt) {
    const std::string number = attempt == 1 ? "" : fmt::format(".{}", attempt);
    fs::path partial = folder / fmt::format("{}.{}{}.partial", prefix, getpid(), number);
    std::error_code error;
    if (fs::create_directory(partial, error)) return partial;
    if (error && error != std::errc::file_exists) fail_to_make(folder / prefix, error);
  }
}

}  // namespace

OutputFolder::OutputFolder(const fs::path& path, const std::string& inner_name) {
  if (path.empty()) throw Error("The folder to write has no name.");
  is_inside_ = check_is_free(path);
  std::error_code error;
  path_ = fs::absolute(path, error).lexically_normal();
  if (error) fail_to_make(path, error);
  if (!path_.has_filename()) path_ = path_.parent_path();
  if (is_inside_) path_ = fs::canonical(path_, error);
  if (error) fail_to_make(path, error);
  partial_ = is_inside_ ? make_partial(path_, inner_name)
                        : make_partial(path_.parent_path(), path_.filename().string());
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
  // The folder is complete: from here on it is left where it is.
  const fs::path complete = std::exchange(partial_, {});
  try {
    check_is_free(path_, is_inside_ ? complete.filename() : fs::path());
  } catch (const Error& error) {
    throw Error(
        fmt::format("{} What was written is complete as {}.", error.what(), complete.string()));
  }
  const std::error_code error = is_inside_ ? move_files(complete) : rename_folder(complete);
  if (!error) return;
  throw Error(fmt::format("{}: the folder cannot be put there: {}. What is not there yet is in {}.",
                          path_.string(), error.message(), complete.string()));
}

std::error_code OutputFolder::rename_folder(const fs::path& complete) const {
  std::error_code error;
  fs::rename(complete, path_, error);
  return error;
}

std::error_code OutputFolder::move_files(const fs::path& complete) const {
  constexpr const char* kLast = "config.json";
  std::vector<fs::path> names;
  std::error_code error;
  for (fs::directory_iterator it(complete, error), end; !error && it != end; it.increment(error)) {
    names.push_back(it->path().filename());
  }
  if (error) return error;
  std::partition(names.begin(), names.end(), [&](const fs::path& name) { return name != kLast; });
  for (const fs::path& name : names) {
    fs::rename(complete / name, path_ / name, error);
    if (error) return error;
  }
  fs::remove(complete, error);
  return error;
}

}  // namespace quire
