#include "loader/gguf_model.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "quire/error.h"

namespace quire {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kExtension = ".gguf";
constexpr size_t kNumberDigits = 5;
constexpr int64_t kMaxParts = 1000;
constexpr int64_t kMaxTensors = INT32_MAX;

std::optional<int64_t> number_of(std::string_view digits) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return number;
}

// What a part's name says: PREFIX-00002-of-00003.gguf.
struct PartName {
  std::string prefix;
  int64_t count = 0;
};

std::optional<PartName> parse_part_name(std::string_view name) {
  constexpr std::string_view kOf = "-of-";
  constexpr size_t kSuffix = 1 + kNumberDigits + kOf.size() + kNumberDigits;
  if (!name.ends_with(kExtension)) return std::nullopt;
  name.remove_suffix(kExtension.size());
  if (name.size() <= kSuffix) return std::nullopt;
  const std::string_view suffix = name.substr(name.size() - kSuffix);
  const auto number = number_of(suffix.substr(1, kNumberDigits));
  const auto count = number_of(suffix.substr(kSuffix - kNumberDigits));
  const bool is_part = suffix[0] == '-' && suffix.substr(1 + kNumberDigits, kOf.size()) == kOf &&
                       number && count && *number >= 1 && *number <= *count && *count <= kMaxParts;
  if (!is_part) return std::nullopt;
  return PartName{std::string(name.substr(0, name.size() - kSuffix)), *count};
}

// Checks what the part number `index` of `count` says about itself.
void check_part(const GgufFile& file, int64_t index, int64_t count) {
  const auto split_count = file.integer("split.count", 0, kMaxParts);
  if (count == 1 && split_count.value_or(1) <= 1) return;
  if (split_count != count) {
    file.fail("split.count",
              split_count
                  ? fmt::format("is {}, but the file's name makes it one of {} parts: expected a "
                                "name that ends in -00001-of-{:05}.gguf, as it was split",
                                *split_count, count, *split_count)
                  : fmt::format("is missing; expected {}, as the file's name says", count));
  }
  const int64_t number = file.required_integer("split.no", 0, kMaxParts);
  if (number != index) {
    file.fail("split.no",
              fmt::format("is {}; expected {}, as the file's name says", number, index));
  }
}

void check_tensors(const std::vector<GgufModel::Part>& parts) {
  std::unordered_map<std::string_view, const GgufFile*> owners;
  for (const GgufModel::Part& part : parts) {
    for (const GgufTensor& tensor : part.file.tensors()) {
      const auto [it, is_new] = owners.emplace(tensor.name, &part.file);
      if (is_new) continue;
      throw Error(fmt::format("{}: the tensor {} is in {}, too.", part.file.name(),
                              loader_internal::shown_name(tensor.name), it->second->name()));
    }
  }
  const GgufFile& first = parts.front().file;
  const auto expected = first.integer("split.tensors.count", 0, kMaxTensors);
  if (parts.size() > 1 && expected && *expected != static_cast<int64_t>(owners.size())) {
    first.fail("split.tensors.count", fmt::format("is {}, but the {} parts have {} tensors",
                                                  *expected, parts.size(), owners.size()));
  }
}

}  // namespace

bool is_gguf_path(const fs::path& path) {
  std::error_code error;
  return path.extension() == kExtension && !fs::is_directory(path, error);
}

std::vector<fs::path> gguf_parts(const fs::path& path) {
  const auto part = parse_part_name(path.filename().string());
  if (!part) return {path};
  std::vector<fs::path> files;
  for (int64_t number = 1; number <= part->count; ++number) {
    files.push_back(path.parent_path() / fmt::format("{}-{:05}-of-{:05}{}", part->prefix, number,
                                                     part->count, kExtension));
  }
  return files;
}

GgufModel GgufModel::open(const fs::path& path) {
  const std::vector<fs::path> files = gguf_parts(path);
  for (const fs::path& file : files) {
    if (fs::exists(file)) continue;
    throw Error(fmt::format(
        "{}: there is no such file{}.", file.string(),
        files.size() == 1 ? ""
                          : fmt::format("; the model is split into {} of them", files.size())));
  }
  GgufModel model;
  for (const fs::path& file : files) {
    MappedFile mapped = MappedFile::open(file);
    GgufFile parsed = GgufFile::parse(mapped.bytes(), file.string());
    check_part(parsed, static_cast<int64_t>(model.parts_.size()),
               static_cast<int64_t>(files.size()));
    model.parts_.push_back({std::move(mapped), std::move(parsed)});
  }
  check_tensors(model.parts_);
  return model;
}

}  // namespace quire
