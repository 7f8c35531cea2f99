#include "ops/cuda/linear/algorithms_file.h"

#include <fmt/format.h>

#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/json_text.h"
#include "base/mapped_file.h"
#include "quire/error.h"

namespace quire::ops {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxFileBytes = size_t{32} << 20;
constexpr const char* kList = "linear_algorithms";
constexpr const char* kMadeWith = "made_with";

// On one line and cut to a readable length.
std::string shown(const Json& value) {
  constexpr size_t kMaxLength = 60;
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kMaxLength) text = text.substr(0, kMaxLength) + "...";
  return text;
}

// An object of the file with the fields `names` and no others. `where` opens messages: "tuned.json:
// entry 3 of linear_algorithms".
class Fields {
 public:
  Fields(const Json& object, std::string where, std::initializer_list<std::string_view> names)
      : object_(object), where_(std::move(where)) {
    if (!object.is_object()) {
      throw Error(fmt::format("{} is {}; expected an object.", where_, shown(object)));
    }
    const std::set<std::string_view> known(names);
    for (const auto& [name, value] : object.items()) {
      if (known.contains(name)) continue;
      throw Error(
          fmt::format("{} has a field {}, which is not known there.", where_, shown(Json(name))));
    }
  }

  const Json& get(const char* name) const {
    const auto found = object_.find(name);
    if (found == object_.end()) throw Error(fmt::format("{} has no field {}.", where_, name));
    return *found;
  }

  // An integer from `least` to the most that T holds; of 64 bits, 2^31 - 1.
  template <typename T>
  T integer(const char* name, int64_t least) const {
    constexpr int64_t kMost = sizeof(T) == 8 ? std::numeric_limits<int32_t>::max()
                                             : static_cast<int64_t>(std::numeric_limits<T>::max());
    const Json& value = get(name);
    const bool fits =
        value.is_number_integer() &&
        (!value.is_number_unsigned() || value.get<uint64_t>() <= static_cast<uint64_t>(kMost));
    if (!fits || value.get<int64_t>() < least || value.get<int64_t>() > kMost) {
      fail(name, fmt::format("an integer from {} to {}", least, kMost));
    }
    return static_cast<T>(value.get<int64_t>());
  }

  DType dtype(const char* name) const {
    const Json& value = get(name);
    if (value.is_string()) {
      const auto dtype = dtype_from_name(value.get_ref<const std::string&>());
      if (dtype == DType::kFloat32 || dtype == DType::kBFloat16 || dtype == DType::kFloat16) {
        return *dtype;
      }
    }
    fail(name, "\"float32\", \"bfloat16\" or \"float16\"");
  }

  [[noreturn]] void fail(const char* name, std::string_view expected) const {
    throw Error(fmt::format("{}: the field {} is {}; expected {}.", where_, name, shown(get(name)),
                            expected));
  }

  const std::string& where() const { return where_; }

 private:
  const Json& object_;
  std::string where_;
};

LinearAlgorithm algorithm_from(const Json& json, const std::string& where) {
  const Fields fields(json, where + ": algorithm",
                      {"id", "tile", "stages", "split_k", "reduction", "swizzle", "custom",
                       "inner_shape", "cluster_shape"});
  const LinearAlgorithm algorithm = {.id = fields.integer<int32_t>("id", 0),
                                     .tile = fields.integer<uint32_t>("tile", 0),
                                     .stages = fields.integer<uint32_t>("stages", 0),
                                     .split_k = fields.integer<int32_t>("split_k", -1),
                                     .reduction = fields.integer<uint32_t>("reduction", 0),
                                     .swizzle = fields.integer<uint32_t>("swizzle", 0),
                                     .custom = fields.integer<uint32_t>("custom", 0),
                                     .inner_shape = fields.integer<uint16_t>("inner_shape", 0),
                                     .cluster_shape = fields.integer<uint16_t>("cluster_shape", 0)};
  if (!sums_in_float32(algorithm)) {
    fields.fail("reduction", fmt::format("0 (none) or {} (in float32)", kReductionInFloat32));
  }
  return algorithm;
}

LinearAlgorithmEntry entry_from(const Json& json, const std::string& where) {
  const Fields fields(json, where,
                      {"compute_capability", "multiprocessors", "dtype", "out_dtype", "n", "k",
                       "rows", "algorithm"});
  LinearAlgorithmEntry entry;
  entry.shape = {.gpu = {.compute_capability = fields.integer<int>("compute_capability", 10),
                         .num_multiprocessors = fields.integer<int>("multiprocessors", 1)},
                 .dtype = fields.dtype("dtype"),
                 .out_dtype = fields.dtype("out_dtype"),
                 .n = fields.integer<int64_t>("n", 1),
                 .k = fields.integer<int64_t>("k", 1),
                 .rows = fields.integer<int64_t>("rows", 1)};
  if (entry.shape.out_dtype != entry.shape.dtype && entry.shape.out_dtype != DType::kFloat32) {
    fields.fail("out_dtype", "that of dtype, or \"float32\"");
  }
  if (const Json& algorithm = fields.get("algorithm"); !algorithm.is_null()) {
    entry.algorithm = algorithm_from(algorithm, where);
  }
  return entry;
}

Json to_json(const LinearAlgorithmEntry& entry) {
  Json json = {{"compute_capability", entry.shape.gpu.compute_capability},
               {"multiprocessors", entry.shape.gpu.num_multiprocessors},
               {"dtype", name_of(entry.shape.dtype)},
               {"out_dtype", name_of(entry.shape.out_dtype)},
               {"n", entry.shape.n},
               {"k", entry.shape.k},
               {"rows", entry.shape.rows},
               {"algorithm", nullptr}};
  if (entry.algorithm) {
    json["algorithm"] = {{"id", entry.algorithm->id},
                         {"tile", entry.algorithm->tile},
                         {"stages", entry.algorithm->stages},
                         {"split_k", entry.algorithm->split_k},
                         {"reduction", entry.algorithm->reduction},
                         {"swizzle", entry.algorithm->swizzle},
                         {"custom", entry.algorithm->custom},
                         {"inner_shape", entry.algorithm->inner_shape},
                         {"cluster_shape", entry.algorithm->cluster_shape}};
  }
  return json;
}

}  // namespace

std::vector<LinearAlgorithmEntry> parse_linear_algorithms(std::string_view text,
                                                          const std::string& name) {
  Json document;
  try {
    // A list of objects with an object in them, of 18 values each.
    document = parse_json_text(text, {.max_depth = 4, .max_values = 32 * kMaxLinearAlgorithms});
  } catch (const JsonError& error) {
    throw Error(fmt::format("{}: {}.", name, error.what()));
  }
  const Fields fields(document, name, {kMadeWith, kList});
  const Json& list = fields.get(kList);
  if (!list.is_array()) fields.fail(kList, "a list");
  if (list.size() > kMaxLinearAlgorithms) {
    throw Error(fmt::format("{}: {} has {} entries; expected at most {}.", name, kList, list.size(),
                            kMaxLinearAlgorithms));
  }
  std::vector<LinearAlgorithmEntry> entries;
  std::set<LinearShape> shapes;
  for (const Json& item : list) {
    const std::string where = fmt::format("{}: entry {} of {}", name, entries.size() + 1, kList);
    entries.push_back(entry_from(item, where));
    if (!shapes.insert(entries.back().shape).second) {
      throw Error(
          fmt::format("{} is of the same GPU, types, n, k and rows as one before it.", where));
    }
  }
  return entries;
}

std::vector<LinearAlgorithmEntry> read_linear_algorithms(const std::filesystem::path& path) {
  return parse_linear_algorithms(read_text_file(path, kMaxFileBytes), path.string());
}

std::string linear_algorithms_text(std::span<const LinearAlgorithmEntry> entries,
                                   std::string_view made_with) {
  std::string text =
      fmt::format("{{\"{}\": {},\n \"{}\": [", kMadeWith,
                  Json(made_with).dump(-1, ' ', false, Json::error_handler_t::replace), kList);
  std::string_view separator = "\n  ";
  for (const LinearAlgorithmEntry& entry : entries) {
    text += separator;
    text += to_json(entry).dump();
    separator = ",\n  ";
  }
  return text + "]}\n";
}

}  // namespace quire::ops
