#pragma once
// The GGUF file format: typed metadata, then the list of tensors, then their data.
//
// Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3 in
// Every length, count, type, offset and alignment is checked against the size of the file before it
// is used, so a false count costs an Error and no memory. The results are views of the file's
// bytes, which must outlive them.
// Thread safety: const use is free.
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "loader/gguf_types.h"

namespace quire {

// The types of metadata, with the file's numbers.
enum class GgufValueType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

// A value of the metadata: one item, or an array of them, which all have the same type.
struct GgufValue {
  GgufValueType type = GgufValueType::kUint8;  // of each item; never kArray
  bool is_array = false;
  uint64_t count = 1;  // items
  // The items, one behind the other. A string is 8 bytes with its length, then its text.
  std::span<const std::byte> bytes;
};

struct GgufTensor {
  std::string_view name;
  const GgufType* type = nullptr;
  std::vector<int64_t> shape;  // row-major, the file's dimensions turned round: [rows, columns]
  std::span<const std::byte> data;
};

class GgufFile {
 public:
  // `name` stands for the file in messages. Throws Error, saying what was found and expected, for
  // another format, version or byte order; a header that is truncated; keys and tensors given
  // twice; unknown types; arrays of arrays; an alignment that is no power of two; and tensors that
  // are not aligned, overlap or reach beyond the end of the file.
  static GgufFile parse(std::span<const std::byte> file, std::string name);

  const std::string& name() const { return name_; }
  uint32_t version() const { return version_; }
  const std::map<std::string_view, GgufValue>& metadata() const { return metadata_; }
  // In the order of the file's list.
  const std::vector<GgufTensor>& tensors() const { return tensors_; }

  // The value of a key; nothing where the key is missing. They throw Error, naming the key, where
  // its value has another type or is out of range.
  bool has(std::string_view key) const { return metadata_.contains(key); }
  std::optional<int64_t> integer(std::string_view key, int64_t min, int64_t max) const;
  std::optional<double> number(std::string_view key, double min, double max) const;
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::string_view> string(std::string_view key) const;
  std::optional<std::vector<int64_t>> integers(std::string_view key, int64_t min,
                                               int64_t max) const;
  std::optional<std::vector<float>> floats(std::string_view key) const;
  std::optional<std::vector<std::string_view>> strings(std::string_view key) const;

  // The same for keys that must be there.
  int64_t required_integer(std::string_view key, int64_t min, int64_t max) const;
  std::string_view required_string(std::string_view key) const;

  // Throws Error: "FILE: the key KEY <what>."
  [[noreturn]] void fail(std::string_view key, std::string_view what) const;

 private:
  explicit GgufFile(std::string name) : name_(std::move(name)) {}
  const GgufValue* find(std::string_view key) const;
  const GgufValue* find_one(std::string_view key) const;
  const GgufValue* find_array(std::string_view key) const;
  [[noreturn]] void fail_type(std::string_view key, const GgufValue& value,
                              std::string_view expected) const;

  std::string name_;
  uint32_t version_ = 0;
  std::map<std::string_view, GgufValue> metadata_;
  std::vector<GgufTensor> tensors_;
};

namespace loader_internal {

// A name from a file as a message shows it: quoted, on one line and cut to a readable length.
std::string shown_name(std::string_view name);

}  // namespace loader_internal
}  // namespace quire
