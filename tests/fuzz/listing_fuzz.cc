// The bytes are the hub's answer about a repository, or a model's index of shards. No name that is
// accepted may lead out of the cache.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "hub/file_selection.h"
#include "hub/repo_listing.h"
#include "quire/error.h"

namespace {

void require(bool sound) {
  if (!sound) std::abort();
}

bool stays_below(const std::string& name) {
  const std::filesystem::path path(name);
  return !name.empty() && path.is_relative() && path.lexically_normal() == path &&
         *path.begin() != ".." && name.find('\0') == std::string::npos;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    for (const std::string& shard : quire::parse_index_shards(text, "fuzz")) {
      require(stays_below(shard));
    }
  } catch (const quire::Error&) {
  }
  try {
    const quire::RepoListing listing = quire::parse_repo_listing(text, "fuzz");
    require(listing.commit.size() == 40);
    for (const quire::RemoteFile& file : listing.files) {
      require(stays_below(file.name) && file.size >= 0 && file.id.hex.size() >= 40);
    }
    quire::select_files(listing, {}, {}, "fuzz");
  } catch (const quire::Error&) {
  }
  return 0;
}
