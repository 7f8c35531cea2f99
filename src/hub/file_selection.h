#pragma once
// Which files of a repository are taken.
//
// Thread safety: free functions.
#include <string>
#include <string_view>
#include <vector>

#include "hub/repo_listing.h"

namespace quire {

// The index of a model in shards.
inline constexpr std::string_view kShardIndex = "model.safetensors.index.json";

// Patterns as huggingface_hub's allow_patterns and ignore_patterns: shell wildcards, where * also
// matches slashes, and "folder/" stands for all that is in it.
struct FilePatterns {
  std::vector<std::string> include;  // empty: what quire needs of a model
  std::vector<std::string> exclude;
  // Without include patterns: the GGUF model to take in place of safetensors (hub/gguf_choice.h);
  // empty: one only where there are no safetensors.
  std::string gguf = {};
};

// Whether the choice depends on the index of the repository's shards, which must then be downloaded
// first.
bool needs_shard_index(const RepoListing& listing, const FilePatterns& patterns);

// The files to take, weights last. `shards` are the files that the index lists, where it is needed.
// Throws Error, naming `repository` and listing its files, where nothing matches; or, without
// include patterns, where config.json or weights are missing, or several GGUF models could be
// meant.
std::vector<RemoteFile> select_files(const RepoListing& listing, const FilePatterns& patterns,
                                     const std::set<std::string>& shards,
                                     std::string_view repository);

}  // namespace quire
