#pragma once
// Reads a GGUF file's header from front to back, for GgufFile::parse().
//
// Thread safety: one thread at a time.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "loader/gguf_file.h"

namespace quire::loader_internal {

inline constexpr int64_t kDefaultAlignment = 32;

// The machine's byte order is the file's, little-endian (core/dtype.h relies on it, too).
template <typename T>
T load_little_endian(std::span<const std::byte> bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

// The string whose length stands at `at`. It was checked to be inside `bytes`.
std::string_view string_at(std::span<const std::byte> bytes, size_t at);

class GgufReader {
 public:
  // `file` is the name for messages; both outlive the reader.
  GgufReader(std::span<const std::byte> bytes, const std::string& file)
      : bytes_(bytes), file_(file) {}

  struct Head {
    uint32_t version = 0;
    uint64_t num_tensors = 0;
    uint64_t num_keys = 0;
  };
  // To be called in this order.
  Head read_head();
  // The next key and its value, number `index` of `count`.
  std::pair<std::string_view, GgufValue> read_entry(uint64_t index, uint64_t count);
  std::vector<GgufTensor> read_tensors(uint64_t count, uint64_t alignment);

 private:
  struct Place {
    GgufTensor tensor;
    uint64_t offset = 0;  // within the data
    uint64_t size = 0;
  };

  [[noreturn]] void fail(std::string_view what) const;
  [[noreturn]] void fail_tensor(std::string_view name, std::string_view what) const;
  // Throws unless `size` more bytes are there for `what`.
  void need(uint64_t size, std::string_view what) const {
    if (size > bytes_.size() - at_) fail_truncated(size, what);
  }
  [[noreturn]] void fail_truncated(uint64_t size, std::string_view what) const;
  std::span<const std::byte> take(uint64_t size, std::string_view what);
  template <typename T>
  T take_number(std::string_view what) {
    return load_little_endian<T>(take(sizeof(T), what), 0);
  }
  std::string_view take_string(std::string_view what);
  GgufValueType take_type(std::string_view key);
  Place read_place(uint64_t index, uint64_t count);
  void read_shape(Place& place);
  void set_size(Place& place) const;
  void check_places(const std::vector<Place>& places, uint64_t data_size, uint64_t alignment) const;

  std::span<const std::byte> bytes_;
  const std::string& file_;
  size_t at_ = 0;
};

}  // namespace quire::loader_internal
