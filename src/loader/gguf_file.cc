#include "loader/gguf_file.h"

#include <fmt/format.h>

#include <bit>
#include <utility>

#include "loader/gguf_reader.h"
#include "loader/json_fields.h"
#include "quire/error.h"

namespace quire {
namespace {

using loader_internal::GgufReader;

std::string_view name_of_value_type(GgufValueType type) {
  constexpr std::string_view kNames[] = {"uint8",  "int8",    "uint16", "int16",  "uint32",
                                         "int32",  "float32", "bool",   "string", "array",
                                         "uint64", "int64",   "float64"};
  return kNames[static_cast<size_t>(type)];
}

std::string describe(const GgufValue& value) {
  const std::string_view type = name_of_value_type(value.type);
  return value.is_array ? fmt::format("an array of {} {} values", value.count, type)
                        : fmt::format("a {} value", type);
}

// Item `index` of an integer type; nothing for other types, and for what int64_t does not hold.
std::optional<int64_t> integer_at(const GgufValue& value, size_t index) {
  const auto read = [&]<typename T>(T) {
    return loader_internal::load_little_endian<T>(value.bytes, index * sizeof(T));
  };
  switch (value.type) {
    case GgufValueType::kUint8:
      return read(uint8_t{});
    case GgufValueType::kInt8:
      return read(int8_t{});
    case GgufValueType::kUint16:
      return read(uint16_t{});
    case GgufValueType::kInt16:
      return read(int16_t{});
    case GgufValueType::kUint32:
      return read(uint32_t{});
    case GgufValueType::kInt32:
      return read(int32_t{});
    case GgufValueType::kInt64:
      return read(int64_t{});
    case GgufValueType::kUint64: {
      const uint64_t wide = read(uint64_t{});
      if (wide > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
      return static_cast<int64_t>(wide);
    }
    default:
      return std::nullopt;
  }
}

bool is_integer(GgufValueType type) {
  switch (type) {
    case GgufValueType::kFloat32:
    case GgufValueType::kFloat64:
    case GgufValueType::kBool:
    case GgufValueType::kString:
    case GgufValueType::kArray:
      return false;
    default:
      return true;
  }
}

}  // namespace

std::string loader_internal::shown_name(std::string_view name) {
  return shown(std::string(name.substr(0, 200)));
}

GgufFile GgufFile::parse(std::span<const std::byte> bytes, std::string name) {
  GgufFile file(std::move(name));
  GgufReader reader(bytes, file.name_);
  const GgufReader::Head head = reader.read_head();
  file.version_ = head.version;
  for (uint64_t i = 0; i < head.num_keys; ++i) {
    auto [key, value] = reader.read_entry(i, head.num_keys);
    if (!file.metadata_.emplace(key, value).second) {
      file.fail(loader_internal::shown_name(key), "is given twice");
    }
  }
  const int64_t alignment = file.integer("general.alignment", 1, int64_t{1} << 30)
                                .value_or(loader_internal::kDefaultAlignment);
  if (!std::has_single_bit(static_cast<uint64_t>(alignment))) {
    file.fail("general.alignment", fmt::format("is {}; expected a power of two", alignment));
  }
  file.tensors_ = reader.read_tensors(head.num_tensors, static_cast<uint64_t>(alignment));
  return file;
}

void GgufFile::fail(std::string_view key, std::string_view what) const {
  throw Error(fmt::format("{}: the key {} {}.", name_, key, what));
}

void GgufFile::fail_type(std::string_view key, const GgufValue& value,
                         std::string_view expected) const {
  fail(key, fmt::format("is {}; expected {}", describe(value), expected));
}

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto it = metadata_.find(key);
  return it == metadata_.end() ? nullptr : &it->second;
}

const GgufValue* GgufFile::find_one(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value != nullptr && value->is_array) fail_type(key, *value, "one value");
  return value;
}

const GgufValue* GgufFile::find_array(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value != nullptr && !value->is_array) fail_type(key, *value, "an array");
  return value;
}

std::optional<int64_t> GgufFile::integer(std::string_view key, int64_t min, int64_t max) const {
  const GgufValue* value = find_one(key);
  if (value == nullptr) return std::nullopt;
  if (!is_integer(value->type)) fail_type(key, *value, "an integer");
  const std::optional<int64_t> found = integer_at(*value, 0);
  if (!found || *found < min || *found > max) {
    fail(key, fmt::format("is {}; expected an integer from {} to {}",
                          found ? std::to_string(*found) : "more than 63 bits hold", min, max));
  }
  return found;
}

std::optional<double> GgufFile::number(std::string_view key, double min, double max) const {
  const GgufValue* value = find_one(key);
  if (value == nullptr) return std::nullopt;
  double found = 0;
  if (value->type == GgufValueType::kFloat32) {
    found = loader_internal::load_little_endian<float>(value->bytes, 0);
  } else if (value->type == GgufValueType::kFloat64) {
    found = loader_internal::load_little_endian<double>(value->bytes, 0);
  } else if (const auto whole = integer_at(*value, 0)) {
    found = static_cast<double>(*whole);
  } else {
    fail_type(key, *value, "a number");
  }
  if (!(found >= min && found <= max)) {  // NaN is in no range
    fail(key, fmt::format("is {:g}; expected a number from {:g} to {:g}", found, min, max));
  }
  return found;
}

std::optional<bool> GgufFile::boolean(std::string_view key) const {
  const GgufValue* value = find_one(key);
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufValueType::kBool) fail_type(key, *value, "true or false");
  return value->bytes[0] != std::byte{0};
}

std::optional<std::string_view> GgufFile::string(std::string_view key) const {
  const GgufValue* value = find_one(key);
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufValueType::kString) fail_type(key, *value, "a string");
  return loader_internal::string_at(value->bytes, 0);
}

std::optional<std::vector<int64_t>> GgufFile::integers(std::string_view key, int64_t min,
                                                       int64_t max) const {
  const GgufValue* value = find_array(key);
  if (value == nullptr) return std::nullopt;
  if (!is_integer(value->type)) fail_type(key, *value, "integers");
  std::vector<int64_t> result;
  for (uint64_t i = 0; i < value->count; ++i) {
    const std::optional<int64_t> item = integer_at(*value, i);
    if (!item || *item < min || *item > max) {
      fail(key, fmt::format("holds {} at index {}; expected integers from {} to {}",
                            item ? std::to_string(*item) : "more than 63 bits hold", i, min, max));
    }
    result.push_back(*item);
  }
  return result;
}

std::optional<std::vector<float>> GgufFile::floats(std::string_view key) const {
  const GgufValue* value = find_array(key);
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufValueType::kFloat32) fail_type(key, *value, "float32 values");
  std::vector<float> result;
  for (uint64_t i = 0; i < value->count; ++i) {
    result.push_back(loader_internal::load_little_endian<float>(value->bytes, i * sizeof(float)));
  }
  return result;
}

std::optional<std::vector<std::string_view>> GgufFile::strings(std::string_view key) const {
  const GgufValue* value = find_array(key);
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufValueType::kString) fail_type(key, *value, "strings");
  std::vector<std::string_view> result;
  size_t at = 0;
  for (uint64_t i = 0; i < value->count; ++i) {
    result.push_back(loader_internal::string_at(value->bytes, at));
    at += sizeof(uint64_t) + result.back().size();
  }
  return result;
}

int64_t GgufFile::required_integer(std::string_view key, int64_t min, int64_t max) const {
  const std::optional<int64_t> value = integer(key, min, max);
  if (!value) {
    fail(key, fmt::format("is missing; expected an integer from {} to {}", min, max));
  }
  return *value;
}

std::string_view GgufFile::required_string(std::string_view key) const {
  const std::optional<std::string_view> value = string(key);
  if (!value) fail(key, "is missing; expected a string");
  return *value;
}

}  // namespace quire
