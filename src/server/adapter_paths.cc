#include "server/adapter_paths.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "server/api/api_error.h"

namespace quire::server {
namespace {

namespace fs = std::filesystem;

constexpr const char* kParam = "lora_path";

// Both without links and dots.
bool is_within(const fs::path& path, const fs::path& folder) {
  return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first ==
         folder.end();
}

ApiError elsewhere(const std::string& path) {
  return invalid_request(
      fmt::format("lora_path is {}, which is not below the folder that adapters are loaded from "
                  "(--lora-dir).",
                  path),
      kParam, "invalid_value");
}

ApiError no_folder(const std::string& path) {
  ApiError error = not_found(fmt::format("There is no folder {} on the server.", path));
  error.param = kParam;
  return error;
}

// Where a path leads when all links are followed, whether the target exists or not, so that the
// answer does not reveal what exists elsewhere. Links in a circle lead to nothing.
fs::path resolve(const fs::path& path) {
  constexpr int kMaxLinks = 40;
  std::deque<fs::path> rest(path.begin(), path.end());
  fs::path resolved;
  int num_links = 0;
  while (!rest.empty()) {
    const fs::path part = rest.front();
    rest.pop_front();
    if (part.empty() || part == ".") continue;
    if (part == "..") {
      resolved = resolved.parent_path();
      continue;
    }
    const fs::path next = resolved / part;
    std::error_code error;
    if (!fs::is_symlink(fs::symlink_status(next, error))) {
      resolved = next;
      continue;
    }
    const fs::path target = fs::read_symlink(next, error);
    if (error || ++num_links > kMaxLinks) return {};
    rest.insert(rest.begin(), target.begin(), target.end());
  }
  return resolved;
}

// The files of an adapter may be links, as in the cache of Hugging Face.
void check_files(const fs::path& folder, const fs::path& allowed, const std::string& path) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (!is_within(resolve(entry->path()), allowed)) throw elsewhere(path);
  }
  if (error) {
    throw invalid_request(
        fmt::format("lora_path is {}, whose files cannot be listed: {}.", path, error.message()),
        kParam, "invalid_value");
  }
}

}  // namespace

std::string adapter_folder(const std::string& path, const std::string& allowed) {
  if (path.find('\0') != std::string::npos) {
    throw invalid_request("lora_path has a NUL in it; expected the path of a folder.", kParam,
                          "invalid_value");
  }
  std::error_code error;
  if (allowed.empty()) {
    if (!fs::is_directory(path, error)) throw no_folder(path);
    return path;
  }
  const fs::path root = fs::canonical(allowed, error);
  if (error) {
    throw server_error(
        fmt::format("The folder of --lora-dir cannot be read: {}.", error.message()));
  }
  // Where a path leads is checked before whether it exists, so that nobody learns what exists
  // elsewhere.
  const fs::path asked = (root / path).lexically_normal();
  if (!is_within(asked, root)) throw elsewhere(path);
  const fs::path folder = resolve(asked);
  if (!is_within(folder, root)) throw elsewhere(path);
  if (!fs::is_directory(folder, error)) throw no_folder(path);
  check_files(folder, root, path);
  return folder.string();
}

}  // namespace quire::server
