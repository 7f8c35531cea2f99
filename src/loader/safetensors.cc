#include "loader/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <unordered_set>

#include "quire/error.h"

namespace quire {
namespace {

using nlohmann::json;

constexpr size_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr size_t kMaxRank = 8;

struct FileDType {
  std::string_view name;
  uint64_t bits;
};

// The names that the format knows.
constexpr std::array kFileDTypes = {
    FileDType{"F32", 32},    FileDType{"F16", 16},    FileDType{"BF16", 16},
    FileDType{"F64", 64},    FileDType{"I64", 64},    FileDType{"I32", 32},
    FileDType{"I16", 16},    FileDType{"I8", 8},      FileDType{"U64", 64},
    FileDType{"U32", 32},    FileDType{"U16", 16},    FileDType{"U8", 8},
    FileDType{"BOOL", 8},    FileDType{"C64", 64},    FileDType{"F8_E4M3", 8},
    FileDType{"F8_E5M2", 8}, FileDType{"F8_E8M0", 8}, FileDType{"F6_E2M3", 6},
    FileDType{"F6_E3M2", 6}, FileDType{"F4", 4}};

// A name from the file as a message shows it.
std::string shown_name(std::string_view name) {
  constexpr size_t kMaxLength = 100;
  const std::string cut(name.substr(0, kMaxLength));
  const std::string text = json(cut).dump(-1, ' ', true, json::error_handler_t::replace);
  return name.size() > kMaxLength ? text + "..." : text;
}

struct HeaderEntry {
  std::string name;
  std::optional<std::string> dtype;
  std::optional<std::vector<uint64_t>> shape;
  std::optional<std::vector<uint64_t>> offsets;  // data_offsets: begin and end within the data
};

// Takes the header's JSON event by event, so that what doesn't belong in a header stops the parse
// before it takes memory. Throws Error out of the parse.
class HeaderReader : public nlohmann::json_sax<json> {
 public:
  explicit HeaderReader(const std::string& file) : file_(file) {}

  std::vector<HeaderEntry> take_entries() { return std::move(entries_); }

  bool start_object(size_t) override {
    switch (where_) {
      case Where::kStart:
        where_ = Where::kTop;
        return true;
      case Where::kTop:
        if (key_ == "__metadata__") {
          where_ = Where::kMetadata;
        } else {
          where_ = Where::kTensor;
          entries_.push_back({.name = key_, .dtype = {}, .shape = {}, .offsets = {}});
        }
        return true;
      default:
        unexpected("an object");
    }
  }

  bool end_object() override {
    where_ = where_ == Where::kTop ? Where::kStart : Where::kTop;
    return true;
  }

  bool key(string_t& key) override {
    key_ = key;
    if (where_ == Where::kTop && !names_.insert(key).second) {
      throw Error(fmt::format("{}: the tensor {} is given twice.", file_, shown_name(key)));
    }
    if (where_ == Where::kTensor && key != "dtype" && key != "shape" && key != "data_offsets") {
      throw Error(fmt::format(
          "{}: tensor {} has an unknown field {}; expected dtype, shape and data_offsets.", file_,
          shown_name(entries_.back().name), shown_name(key)));
    }
    return true;
  }

  bool start_array(size_t) override {
    if (where_ != Where::kTensor || key_ == "dtype") unexpected("a list");
    std::optional<std::vector<uint64_t>>& list = current_list();
    if (list) given_twice();
    list.emplace();
    where_ = Where::kList;
    return true;
  }

  bool end_array() override {
    where_ = Where::kTensor;
    return true;
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (where_ != Where::kList) unexpected("a number");
    std::vector<uint64_t>& list = *current_list();
    const size_t max_items = key_ == "shape" ? kMaxRank : 2;
    if (list.size() == max_items) {
      throw Error(fmt::format("{}: tensor {} has more than {} numbers in {}.", file_,
                              shown_name(entries_.back().name), max_items, key_));
    }
    list.push_back(value);
    return true;
  }

  bool string(string_t& value) override {
    if (where_ == Where::kMetadata) return true;
    if (where_ != Where::kTensor || key_ != "dtype") unexpected("a string");
    if (entries_.back().dtype) given_twice();
    entries_.back().dtype = value;
    return true;
  }

  bool null() override { unexpected("null"); }
  bool boolean(bool) override { unexpected("true or false"); }
  bool number_integer(number_integer_t) override { unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    unexpected("a number that is no integer of 64 bits");
  }
  bool binary(binary_t&) override { unexpected("binary data"); }

  bool parse_error(size_t position, const std::string&, const json::exception& error) override {
    std::string what = error.what();
    if (const size_t end = what.find("] "); end != std::string::npos) what.erase(0, end + 2);
    throw Error(fmt::format("{}: the header is not valid JSON at byte {}: {}.", file_, position,
                            what.substr(0, 200)));
  }

 private:
  enum class Where { kStart, kTop, kMetadata, kTensor, kList };

  std::optional<std::vector<uint64_t>>& current_list() {
    return key_ == "shape" ? entries_.back().shape : entries_.back().offsets;
  }

  [[noreturn]] void given_twice() const {
    throw Error(fmt::format("{}: tensor {} has its {} twice.", file_,
                            shown_name(entries_.back().name), key_));
  }

  [[noreturn]] void unexpected(std::string_view what) const {
    switch (where_) {
      case Where::kStart:
        throw Error(
            fmt::format("{}: the header is {}; expected an object of tensors.", file_, what));
      case Where::kTop:
        throw Error(fmt::format("{}: the header has {} for {}; expected an object.", file_, what,
                                shown_name(key_)));
      case Where::kMetadata:
        throw Error(fmt::format("{}: the header's __metadata__ has {} for {}; expected a string.",
                                file_, what, shown_name(key_)));
      case Where::kTensor:
      case Where::kList:
        break;
    }
    throw Error(fmt::format("{}: tensor {} has {} in {}; expected {}.", file_,
                            shown_name(entries_.back().name), what, key_,
                            key_ == "dtype" ? "a string" : "a list of integers from 0 up"));
  }

  const std::string& file_;
  Where where_ = Where::kStart;
  std::string key_;
  std::unordered_set<std::string> names_;
  std::vector<HeaderEntry> entries_;
};

// The bytes that a tensor of this shape and dtype has; nothing where that is no number of 64 bits
// or no whole number of bytes.
std::optional<uint64_t> byte_size(const std::vector<uint64_t>& shape, uint64_t bits) {
  uint64_t count = bits;
  // A dimension of 0 makes the size 0 however large the others are.
  if (std::find(shape.begin(), shape.end(), 0u) != shape.end()) return 0;
  for (const uint64_t dim : shape) {
    if (dim > INT64_MAX || __builtin_mul_overflow(count, dim, &count)) return std::nullopt;
  }
  if (count % 8 != 0) return std::nullopt;
  return count / 8;
}

CheckpointTensor to_tensor(HeaderEntry& entry, std::span<const std::byte> data,
                           const std::string& file) {
  const auto fail = [&](const std::string& what) {
    throw Error(fmt::format("{}: tensor {} {}.", file, shown_name(entry.name), what));
  };
  if (!entry.dtype) fail("has no dtype");
  if (!entry.shape) fail("has no shape");
  if (!entry.offsets || entry.offsets->size() != 2) {
    fail("has no data_offsets of two numbers, begin and end");
  }
  const auto dtype = std::find_if(kFileDTypes.begin(), kFileDTypes.end(),
                                  [&](const FileDType& d) { return d.name == *entry.dtype; });
  if (dtype == kFileDTypes.end()) {
    fail(fmt::format("has the unknown dtype {}", shown_name(*entry.dtype)));
  }
  const uint64_t begin = (*entry.offsets)[0];
  const uint64_t end = (*entry.offsets)[1];
  if (begin > end)
    fail(fmt::format("has data_offsets [{}, {}] that end before they begin", begin, end));
  if (end > data.size()) {
    fail(
        fmt::format("ends at byte {} of the data, but the file has only {} bytes of data; it is "
                    "truncated or its header is wrong",
                    end, data.size()));
  }
  const std::optional<uint64_t> expected = byte_size(*entry.shape, dtype->bits);
  if (!expected || *expected != end - begin) {
    fail(fmt::format("has {} bytes of data, but [{}] {} takes {}", end - begin,
                     fmt::join(*entry.shape, ", "), *entry.dtype,
                     expected ? fmt::format("{} bytes", *expected) : "no such number of bytes"));
  }
  CheckpointTensor tensor;
  tensor.name = std::move(entry.name);
  tensor.file = file;
  tensor.dtype = std::move(*entry.dtype);
  for (const uint64_t dim : *entry.shape) {
    if (dim > INT64_MAX) fail("has a dimension of more than 63 bits");
    tensor.shape.push_back(static_cast<int64_t>(dim));
  }
  tensor.data = data.data() + begin;
  tensor.bytes = static_cast<size_t>(end - begin);
  return tensor;
}

// The tensors, sorted by their data, cover it from the first byte to the last, each byte once.
void check_coverage(const std::vector<CheckpointTensor>& tensors, std::span<const std::byte> data,
                    const std::string& file) {
  const std::byte* next = data.data();
  for (const CheckpointTensor& tensor : tensors) {
    if (tensor.data < next) {
      throw Error(fmt::format("{}: tensor {} overlaps another tensor's data.", file,
                              shown_name(tensor.name)));
    }
    if (tensor.data > next) {
      throw Error(fmt::format("{}: {} bytes before tensor {} belong to no tensor.", file,
                              tensor.data - next, shown_name(tensor.name)));
    }
    next += tensor.bytes;
  }
  const auto rest = data.data() + data.size() - next;
  if (rest != 0) {
    throw Error(fmt::format("{}: the last {} bytes of the file belong to no tensor.", file, rest));
  }
}

uint64_t header_length(std::span<const std::byte> file, const std::string& name) {
  if (file.size() < kLengthBytes) {
    throw Error(fmt::format("{}: the file has {} bytes; a safetensors file has at least {}.", name,
                            file.size(), kLengthBytes));
  }
  uint64_t length = 0;
  for (size_t i = kLengthBytes; i-- > 0;) {
    length = length << 8 | std::to_integer<uint64_t>(file[i]);
  }
  if (length > kMaxHeaderBytes) {
    throw Error(fmt::format(
        "{}: the header claims {} bytes, more than the {} that the format allows; this is "
        "no safetensors file.",
        name, length, kMaxHeaderBytes));
  }
  if (length > file.size() - kLengthBytes) {
    throw Error(
        fmt::format("{}: the header claims {} bytes, but only {} follow; the file is truncated.",
                    name, length, file.size() - kLengthBytes));
  }
  return length;
}

}  // namespace

std::vector<CheckpointTensor> parse_safetensors(std::span<const std::byte> file,
                                                const std::string& name) {
  const uint64_t length = header_length(file, name);
  const auto header = file.subspan(kLengthBytes, length);
  const auto data = file.subspan(kLengthBytes + length);
  HeaderReader reader(name);
  const auto* text = reinterpret_cast<const char*>(header.data());
  json::sax_parse(text, text + header.size(), &reader);

  std::vector<CheckpointTensor> tensors;
  for (HeaderEntry& entry : reader.take_entries()) {
    tensors.push_back(to_tensor(entry, data, name));
  }
  // Empty tensors first where they share a place with another.
  std::stable_sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    return a.data != b.data ? a.data < b.data : a.bytes < b.bytes;
  });
  check_coverage(tensors, data, name);
  return tensors;
}

}  // namespace quire
