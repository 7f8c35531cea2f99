#pragma once
// What a repository of the hub holds at a commit, according to the hub's API. The API's answer is
// checked here: names that lead out of the cache, and files that could not be verified after the
// download, get no further.
//
// Thread safety: free functions.
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "hub/content_hash.h"

namespace quire {

struct RemoteFile {
  std::string name;  // relative, with slashes: "config.json"
  int64_t size = 0;  // bytes
  ContentId id;      // also the name of its blob in the cache

  bool operator==(const RemoteFile&) const = default;
};

struct RepoListing {
  std::string commit;             // 40 hexadecimal digits
  std::vector<RemoteFile> files;  // by name

  // Null where there is no file of that name.
  const RemoteFile* find(std::string_view name) const;
};

// Parses the answer of /api/models/ORG/NAME/revision/REVISION?blobs=true. Throws Error, opening
// with `where`, for what is not such an answer: fields missing or of the wrong type, sizes beyond
// reason, names that are unsafe_path(), given twice, or a file and a folder at once.
RepoListing parse_repo_listing(std::string_view json, std::string_view where);

// Why a path from outside cannot become one below a folder: "it leads elsewhere", say. Empty if it
// can: relative, without ".", ".." and empty parts, of no more than the file system's lengths.
std::string unsafe_path(std::string_view path);

// The files that a model.safetensors.index.json lists. Throws Error, opening with `where`, if it is
// no index, or lists anything but .safetensors files in its own folder.
std::set<std::string> parse_index_shards(std::string_view json, std::string_view where);

}  // namespace quire
