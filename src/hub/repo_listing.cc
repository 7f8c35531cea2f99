#include "hub/repo_listing.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "quire/error.h"

namespace quire {
namespace {

using Json = nlohmann::json;

constexpr int kMaxDepth = 64;
constexpr size_t kMaxFiles = 100'000;
constexpr int64_t kMaxFileBytes = int64_t{1} << 50;
constexpr size_t kMaxNameBytes = 255;  // of one part of a path: Linux's NAME_MAX
constexpr size_t kMaxPathBytes = 1024;
constexpr size_t kShownBytes = 100;

// A message would end at a zero byte.
std::string shown(std::string_view text) {
  std::string line;
  for (const char c : text.substr(0, kShownBytes))
    line += c == '\0' ? std::string("\\0") : std::string(1, c);
  return text.size() > kShownBytes ? line + "..." : line;
}

Json parse_object(std::string_view text, std::string_view where) {
  const auto guard = [&](int depth, Json::parse_event_t event, const Json&) {
    const bool opens =
        event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start;
    if (opens && depth >= kMaxDepth) {
      throw Error(fmt::format("{}: the JSON is nested deeper than {} levels.", where, kMaxDepth));
    }
    return true;
  };
  Json json;
  try {
    json = Json::parse(text, guard);
  } catch (const Json::exception&) {
    throw Error(fmt::format("{}: expected JSON, got something else.", where));
  }
  if (!json.is_object()) throw Error(fmt::format("{}: expected a JSON object.", where));
  return json;
}

bool is_hex(std::string_view text, size_t length) {
  return text.size() == length && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

// The string field `key`; nothing where it is missing or null.
std::optional<std::string> string_field(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) return std::nullopt;
  return found->get<std::string>();
}

std::optional<int64_t> size_field(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_unsigned()) return std::nullopt;
  const auto size = found->get<uint64_t>();
  if (size > static_cast<uint64_t>(kMaxFileBytes)) return std::nullopt;
  return static_cast<int64_t>(size);
}

// Fills in size and id from a file's entry.
void read_content(const Json& entry, RemoteFile& file, std::string_view where) {
  const auto size = size_field(entry, "size");
  if (!size) {
    throw Error(fmt::format("{}: the size of {} is missing or beyond reason.", where, file.name));
  }
  file.size = *size;
  const auto lfs = entry.find("lfs");
  const bool is_large = lfs != entry.end() && lfs->is_object();
  if (is_large && size_field(*lfs, "size") != size) {
    throw Error(fmt::format("{}: two sizes are given for {}.", where, file.name));
  }
  file.id.kind = is_large ? ContentId::Kind::kSha256 : ContentId::Kind::kGitBlob;
  file.id.hex =
      (is_large ? string_field(*lfs, "sha256") : string_field(entry, "blobId")).value_or("");
  if (!is_hex(file.id.hex, is_large ? 64 : 40)) {
    throw Error(fmt::format("{}: the {} of {} is missing, so a download could not be checked.",
                            where, file.id.algorithm(), file.name));
  }
}

RemoteFile read_file(const Json& entry, std::string_view where) {
  if (!entry.is_object()) throw Error(fmt::format("{}: siblings: expected objects.", where));
  RemoteFile file;
  const auto name = string_field(entry, "rfilename");
  if (!name) throw Error(fmt::format("{}: a file has no name.", where));
  file.name = *name;
  if (const std::string reason = unsafe_path(file.name); !reason.empty()) {
    throw Error(
        fmt::format("{}: the file name '{}' is refused: {}.", where, shown(file.name), reason));
  }
  read_content(entry, file, where);
  return file;
}

// Throws Error where a file is listed twice, or lies in a folder that is itself a file. `files` are
// sorted.
void check_apart(const std::vector<RemoteFile>& files, std::string_view where) {
  std::set<std::string_view> names;
  for (const RemoteFile& file : files) {
    if (!names.insert(file.name).second) {
      throw Error(fmt::format("{}: the file {} is listed twice.", where, shown(file.name)));
    }
  }
  for (const std::string_view name : names) {
    for (size_t slash = name.find('/'); slash != std::string_view::npos;
         slash = name.find('/', slash + 1)) {
      if (names.count(name.substr(0, slash)) > 0) {
        throw Error(fmt::format("{}: {} is listed as a file and as a folder.", where,
                                shown(name.substr(0, slash))));
      }
    }
  }
}

}  // namespace

const RemoteFile* RepoListing::find(std::string_view name) const {
  const auto found = std::find_if(files.begin(), files.end(),
                                  [&](const RemoteFile& file) { return file.name == name; });
  return found == files.end() ? nullptr : &*found;
}

RepoListing parse_repo_listing(std::string_view text, std::string_view where) {
  const Json json = parse_object(text, where);
  RepoListing listing;
  listing.commit = string_field(json, "sha").value_or("");
  if (!is_hex(listing.commit, 40)) {
    throw Error(
        fmt::format("{}: expected a commit of 40 hexadecimal digits in the field sha.", where));
  }
  const auto siblings = json.find("siblings");
  if (siblings == json.end() || !siblings->is_array() || siblings->size() > kMaxFiles) {
    throw Error(fmt::format("{}: expected a list of at most {} files in the field siblings.", where,
                            kMaxFiles));
  }
  for (const Json& entry : *siblings) listing.files.push_back(read_file(entry, where));
  std::sort(listing.files.begin(), listing.files.end(),
            [](const RemoteFile& a, const RemoteFile& b) { return a.name < b.name; });
  check_apart(listing.files, where);
  return listing;
}

std::string unsafe_path(std::string_view path) {
  if (path.size() > kMaxPathBytes) return fmt::format("it is longer than {} bytes", kMaxPathBytes);
  if (path.find('\0') != std::string_view::npos) return "it has a zero byte in it";
  if (path.starts_with('/')) return "it is absolute";
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view part = path.substr(begin, end - begin);
    if (part.empty()) return "a part of it is empty";
    if (part == "." || part == "..") return "it leads elsewhere";
    if (part.size() > kMaxNameBytes) {
      return fmt::format("a part of it is longer than {} bytes", kMaxNameBytes);
    }
    begin = end + 1;
  }
  return "";
}

std::set<std::string> parse_index_shards(std::string_view text, std::string_view where) {
  const Json json = parse_object(text, where);
  const auto map = json.find("weight_map");
  if (map == json.end() || !map->is_object() || map->empty()) {
    throw Error(
        fmt::format("{}: the field weight_map is missing or empty; expected an object that "
                    "gives each tensor's file.",
                    where));
  }
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : map->items()) {
    const std::string name = shard.is_string() ? shard.get<std::string>() : "";
    if (!name.ends_with(".safetensors") || name.find('/') != std::string::npos ||
        !unsafe_path(name).empty()) {
      throw Error(
          fmt::format("{}: weight_map gives '{}' for {}; expected a .safetensors file in the "
                      "same folder.",
                      where, shown(name), shown(tensor)));
    }
    shards.insert(name);
  }
  return shards;
}

}  // namespace quire
