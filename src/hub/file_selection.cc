#include "hub/file_selection.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <array>

#include "hub/gguf_choice.h"
#include "quire/error.h"

namespace quire {
namespace {

constexpr std::string_view kSingleFile = "model.safetensors";

// Files that quire reads in addition to the weights.
constexpr std::array<std::string_view, 6> kModelFiles = {
    "config.json",           "generation_config.json", "tokenizer.json",
    "tokenizer_config.json", "chat_template.jinja",    "additional_chat_templates/tool_use.jinja"};

bool matches(const std::string& name, const std::vector<std::string>& patterns) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    const std::string whole = pattern.ends_with('/') ? pattern + "*" : pattern;
    return fnmatch(whole.c_str(), name.c_str(), FNM_NOESCAPE) == 0;
  });
}

bool has_suffix(const RepoListing& listing, std::initializer_list<std::string_view> suffixes) {
  return std::any_of(listing.files.begin(), listing.files.end(), [&](const RemoteFile& file) {
    return std::any_of(suffixes.begin(), suffixes.end(),
                       [&](std::string_view suffix) { return file.name.ends_with(suffix); });
  });
}

std::vector<std::string> names_of(const RepoListing& listing) {
  std::vector<std::string> names;
  for (const RemoteFile& file : listing.files) names.push_back(file.name);
  return names;
}

[[noreturn]] void throw_no_weights(const RepoListing& listing, std::string_view repository) {
  std::string_view found = "it may be no language model";
  if (listing.find("adapter_model.safetensors") != nullptr) {
    found = "it holds an adapter: pull the model that it was made for";
  } else if (has_suffix(listing, {".bin", ".pth", ".pt"})) {
    found = "it holds PyTorch's own format: look for a conversion of the model to safetensors";
  } else if (has_suffix(listing, {".safetensors"})) {
    found = "it holds .safetensors files of other names or in folders";
  }
  throw Error(
      fmt::format("{} has no weights that quire can read: expected {} or {}; {}. Nothing was "
                  "downloaded.",
                  repository, kSingleFile, kShardIndex, found));
}

bool has_safetensors(const RepoListing& listing) {
  return listing.find(kSingleFile) != nullptr || listing.find(kShardIndex) != nullptr;
}

// The files of a GGUF model, which has all that quire needs in it.
std::vector<RemoteFile> gguf_files(const RepoListing& listing, std::string_view variant,
                                   std::string_view repository) {
  std::vector<RemoteFile> files;
  for (const std::string& name : choose_gguf(names_of(listing), variant, repository)) {
    files.push_back(*listing.find(name));
  }
  return files;
}

// The files of a model that quire needs.
std::vector<RemoteFile> model_files(const RepoListing& listing, const std::set<std::string>& shards,
                                    std::string_view repository) {
  std::vector<RemoteFile> files;
  for (const std::string_view name : kModelFiles) {
    if (const RemoteFile* file = listing.find(name)) files.push_back(*file);
  }
  if (const RemoteFile* single = listing.find(kSingleFile)) {
    files.push_back(*single);
  } else if (const RemoteFile* index = listing.find(kShardIndex)) {
    files.push_back(*index);
    for (const std::string& shard : shards) {
      const RemoteFile* file = listing.find(shard);
      if (file == nullptr) {
        throw Error(fmt::format("{} is incomplete on the hub: {} lists {}, which is not there.",
                                repository, kShardIndex, shard));
      }
      files.push_back(*file);
    }
  } else {
    throw_no_weights(listing, repository);
  }
  if (listing.find("config.json") == nullptr) {
    throw Error(
        fmt::format("{} has no config.json, so it is no model that quire can run. Nothing was "
                    "downloaded.",
                    repository));
  }
  return files;
}

}  // namespace

bool needs_shard_index(const RepoListing& listing, const FilePatterns& patterns) {
  return patterns.include.empty() && patterns.gguf.empty() &&
         listing.find("config.json") != nullptr && listing.find(kSingleFile) == nullptr &&
         listing.find(kShardIndex) != nullptr;
}

std::vector<RemoteFile> select_files(const RepoListing& listing, const FilePatterns& patterns,
                                     const std::set<std::string>& shards,
                                     std::string_view repository) {
  std::vector<RemoteFile> files = listing.files;
  if (patterns.include.empty()) {
    const bool takes_gguf =
        !patterns.gguf.empty() || (!has_safetensors(listing) && holds_gguf(names_of(listing)));
    files = takes_gguf ? gguf_files(listing, patterns.gguf, repository)
                       : model_files(listing, shards, repository);
  }
  std::erase_if(files, [&](const RemoteFile& file) {
    const bool wanted = patterns.include.empty() || matches(file.name, patterns.include);
    return !wanted || matches(file.name, patterns.exclude);
  });
  if (files.empty()) {
    throw Error(fmt::format("{}: none of its {} files matches the patterns.", repository,
                            listing.files.size()));
  }
  // Small files first: they soonest show whether the rest can be downloaded at all.
  std::stable_partition(files.begin(), files.end(), [](const RemoteFile& file) {
    return !file.name.ends_with(".safetensors") && !file.name.ends_with(".gguf");
  });
  return files;
}

}  // namespace quire
