#include "loader/gguf_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <unordered_set>

#include "quire/error.h"

namespace quire::loader_internal {
namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr uint32_t kOldestVersion = 2;
constexpr uint32_t kNewestVersion = 3;
constexpr uint32_t kMaxRank = 4;
constexpr uint64_t kMaxKeyBytes = 65535;  // the format's own limits
constexpr uint64_t kMaxTensorNameBytes = 64;

// Bytes of an item; 0 for types whose items differ in size.
uint64_t size_of(GgufValueType type) {
  switch (type) {
    case GgufValueType::kUint8:
    case GgufValueType::kInt8:
    case GgufValueType::kBool:
      return 1;
    case GgufValueType::kUint16:
    case GgufValueType::kInt16:
      return 2;
    case GgufValueType::kUint32:
    case GgufValueType::kInt32:
    case GgufValueType::kFloat32:
      return 4;
    case GgufValueType::kUint64:
    case GgufValueType::kInt64:
    case GgufValueType::kFloat64:
      return 8;
    case GgufValueType::kString:
    case GgufValueType::kArray:
      break;
  }
  return 0;
}

}  // namespace

std::string_view string_at(std::span<const std::byte> bytes, size_t at) {
  const auto length = load_little_endian<uint64_t>(bytes, at);
  return {reinterpret_cast<const char*>(bytes.data()) + at + sizeof(uint64_t),
          static_cast<size_t>(length)};
}

void GgufReader::fail(std::string_view what) const {
  throw Error(fmt::format("{}: {}.", file_, what));
}

void GgufReader::fail_tensor(std::string_view name, std::string_view what) const {
  fail(fmt::format("the tensor {} {}", shown_name(name), what));
}

void GgufReader::fail_truncated(uint64_t size, std::string_view what) const {
  fail(fmt::format(
      "the file ends within {}: it takes {} bytes from byte {} on, but the file has {}; "
      "it is truncated or its header is wrong",
      what, size, at_, bytes_.size()));
}

std::span<const std::byte> GgufReader::take(uint64_t size, std::string_view what) {
  need(size, what);
  const auto taken = bytes_.subspan(at_, static_cast<size_t>(size));
  at_ += static_cast<size_t>(size);
  return taken;
}

std::string_view GgufReader::take_string(std::string_view what) {
  const auto length = take_number<uint64_t>(what);
  const auto text = take(length, what);
  return {reinterpret_cast<const char*>(text.data()), text.size()};
}

GgufReader::Head GgufReader::read_head() {
  constexpr std::string_view kWhat = "its head";
  const std::string_view start(reinterpret_cast<const char*>(bytes_.data()),
                               std::min(bytes_.size(), kMagic.size()));
  if (start != kMagic) {
    fail("the file does not begin with GGUF; expected a model in that format");
  }
  at_ = kMagic.size();
  Head head;
  head.version = take_number<uint32_t>(kWhat);
  // Big-endian files have the same magic, so that the version's bytes tell.
  if (head.version != 0 && (head.version & 0xffffu) == 0) {
    fail("the file is in big-endian byte order; expected little-endian, as for x86");
  }
  if (head.version < kOldestVersion || head.version > kNewestVersion) {
    fail(fmt::format("the file is of GGUF's version {}; expected {} or {}", head.version,
                     kOldestVersion, kNewestVersion));
  }
  head.num_tensors = take_number<uint64_t>(kWhat);
  head.num_keys = take_number<uint64_t>(kWhat);
  return head;
}

GgufValueType GgufReader::take_type(std::string_view key) {
  const auto type = take_number<uint32_t>(fmt::format("the type of the key {}", key));
  if (type > static_cast<uint32_t>(GgufValueType::kFloat64)) {
    fail(fmt::format("the key {} is of the unknown type {}", key, type));
  }
  return static_cast<GgufValueType>(type);
}

std::pair<std::string_view, GgufValue> GgufReader::read_entry(uint64_t index, uint64_t count) {
  const std::string_view key =
      take_string(fmt::format("the name of key {} of {}", index + 1, count));
  if (key.empty() || key.size() > kMaxKeyBytes) {
    fail(fmt::format("the name of key {} has {} bytes; expected 1 to {}", index + 1, key.size(),
                     kMaxKeyBytes));
  }
  const std::string name = shown_name(key);
  const std::string what = fmt::format("the value of the key {}", name);
  GgufValue value;
  value.type = take_type(name);
  if (value.type == GgufValueType::kArray) {
    value.is_array = true;
    value.type = take_type(name);
    if (value.type == GgufValueType::kArray) {
      fail(fmt::format("the key {} holds an array of arrays, which is not supported", name));
    }
    value.count = take_number<uint64_t>(what);
  }
  const size_t begin = at_;
  if (const uint64_t size = size_of(value.type); size != 0) {
    uint64_t bytes = 0;
    if (__builtin_mul_overflow(value.count, size, &bytes)) bytes = UINT64_MAX;
    take(bytes, what);
  } else {
    for (uint64_t i = 0; i < value.count; ++i) take_string(what);
  }
  value.bytes = bytes_.subspan(begin, at_ - begin);
  return {key, value};
}

void GgufReader::read_shape(Place& place) {
  const std::string_view name = place.tensor.name;
  const std::string what = fmt::format("the shape of the tensor {}", shown_name(name));
  const auto rank = take_number<uint32_t>(what);
  if (rank < 1 || rank > kMaxRank) {
    fail_tensor(name, fmt::format("has {} dimensions; expected 1 to {}", rank, kMaxRank));
  }
  for (uint32_t i = 0; i < rank; ++i) {
    const auto extent = take_number<uint64_t>(what);
    if (extent < 1 || extent > static_cast<uint64_t>(INT64_MAX)) {
      fail_tensor(name,
                  fmt::format("has {} as a dimension; expected 1 or more, of 63 bits", extent));
    }
    place.tensor.shape.push_back(static_cast<int64_t>(extent));
  }
  std::reverse(place.tensor.shape.begin(), place.tensor.shape.end());
}

void GgufReader::set_size(Place& place) const {
  const GgufType& type = *place.tensor.type;
  const std::vector<int64_t>& shape = place.tensor.shape;
  if (shape.back() % type.block_values != 0) {
    fail_tensor(place.tensor.name,
                fmt::format("has rows of {} values; expected a multiple of {}, the block of {}",
                            shape.back(), type.block_values, type.name));
  }
  int64_t size = type.block_bytes;
  bool overflows = __builtin_mul_overflow(size, shape.back() / type.block_values, &size);
  for (size_t i = 0; i + 1 < shape.size(); ++i) {
    overflows = overflows || __builtin_mul_overflow(size, shape[i], &size);
  }
  if (overflows) {
    fail_tensor(place.tensor.name,
                fmt::format("has the shape [{}], which no file can hold", fmt::join(shape, ", ")));
  }
  place.size = static_cast<uint64_t>(size);
}

GgufReader::Place GgufReader::read_place(uint64_t index, uint64_t count) {
  Place place;
  place.tensor.name = take_string(fmt::format("the name of tensor {} of {}", index + 1, count));
  const std::string_view name = place.tensor.name;
  if (name.empty() || name.size() > kMaxTensorNameBytes) {
    fail(fmt::format("the name of tensor {} has {} bytes; expected 1 to {}", index + 1, name.size(),
                     kMaxTensorNameBytes));
  }
  read_shape(place);
  const std::string what = fmt::format("the list of tensors, at {}", shown_name(name));
  const auto type = take_number<uint32_t>(what);
  place.tensor.type = find_gguf_type(type);
  if (place.tensor.type == nullptr) {
    fail_tensor(name, fmt::format("is of the unknown type {}", type));
  }
  set_size(place);
  place.offset = take_number<uint64_t>(what);
  return place;
}

void GgufReader::check_places(const std::vector<Place>& places, uint64_t data_size,
                              uint64_t alignment) const {
  std::vector<const Place*> in_order;
  for (const Place& place : places) {
    if (place.offset % alignment != 0) {
      fail_tensor(place.tensor.name, fmt::format("begins at byte {} of the data; expected a "
                                                 "multiple of the alignment, {}",
                                                 place.offset, alignment));
    }
    if (place.offset > data_size || place.size > data_size - place.offset) {
      fail_tensor(place.tensor.name,
                  fmt::format("has {} bytes from byte {} of the data on, but the file has only {} "
                              "bytes of data; it is truncated or its header is wrong",
                              place.size, place.offset, data_size));
    }
    in_order.push_back(&place);
  }
  std::sort(in_order.begin(), in_order.end(),
            [](const Place* a, const Place* b) { return a->offset < b->offset; });
  for (size_t i = 1; i < in_order.size(); ++i) {
    const Place& before = *in_order[i - 1];
    if (before.offset + before.size <= in_order[i]->offset) continue;
    fail_tensor(in_order[i]->tensor.name,
                fmt::format("overlaps the tensor {}", shown_name(before.tensor.name)));
  }
}

std::vector<GgufTensor> GgufReader::read_tensors(uint64_t count, uint64_t alignment) {
  std::vector<Place> places;
  std::unordered_set<std::string_view> names;
  for (uint64_t i = 0; i < count; ++i) {
    places.push_back(read_place(i, count));
    const std::string_view name = places.back().tensor.name;
    if (!names.insert(name).second) fail_tensor(name, "is given twice");
  }
  if (places.empty()) return {};  // such as the first part of a split file: there is no data
  const size_t padding = (alignment - at_ % alignment) % alignment;
  take(padding, "the padding before the data");
  const auto data = bytes_.subspan(at_);
  check_places(places, data.size(), alignment);
  std::vector<GgufTensor> tensors;
  for (Place& place : places) {
    place.tensor.data =
        data.subspan(static_cast<size_t>(place.offset), static_cast<size_t>(place.size));
    tensors.push_back(std::move(place.tensor));
  }
  return tensors;
}

}  // namespace quire::loader_internal
