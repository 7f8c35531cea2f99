#pragma once
// Writes the GGUF format, for tests.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

// The bytes of a number, in the machine's order.
template <typename T>
std::string number_bytes(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof(T)};
}

inline std::string gguf_string(std::string_view text) {
  return number_bytes<uint64_t>(text.size()) + std::string(text);
}

// A file's metadata and tensors. Writes whatever it is given, valid or not.
class GgufWriter {
 public:
  uint32_t version = 3;
  uint64_t alignment = 32;  // of the data; general.alignment is a key like others

  // `type` and `value` as the format has them.
  GgufWriter& entry(std::string_view key, uint32_t type, const std::string& value) {
    keys_ += gguf_string(key) + number_bytes(type) + value;
    ++num_keys_;
    return *this;
  }
  GgufWriter& integer(std::string_view key, uint32_t value) {
    return entry(key, 4, number_bytes(value));
  }
  GgufWriter& number(std::string_view key, float value) {
    return entry(key, 6, number_bytes(value));
  }
  GgufWriter& boolean(std::string_view key, bool value) {
    return entry(key, 7, number_bytes<uint8_t>(value));
  }
  GgufWriter& text(std::string_view key, std::string_view value) {
    return entry(key, 8, gguf_string(value));
  }
  GgufWriter& integers(std::string_view key, const std::vector<int32_t>& values) {
    std::string items;
    for (const int32_t value : values) items += number_bytes(value);
    return array(key, 5, values.size(), items);
  }
  GgufWriter& numbers(std::string_view key, const std::vector<float>& values) {
    std::string items;
    for (const float value : values) items += number_bytes(value);
    return array(key, 6, values.size(), items);
  }
  GgufWriter& texts(std::string_view key, const std::vector<std::string>& values) {
    std::string items;
    for (const std::string& value : values) items += gguf_string(value);
    return array(key, 8, values.size(), items);
  }
  GgufWriter& array(std::string_view key, uint32_t type, uint64_t count, const std::string& items) {
    return entry(key, 9, number_bytes(type) + number_bytes(count) + items);
  }

  // `shape` is row-major. The tensor follows the one before it at the next aligned place.
  GgufWriter& tensor(std::string_view name, uint32_t type, std::vector<uint64_t> shape,
                     const std::string& data) {
    data_.resize((data_.size() + alignment - 1) / alignment * alignment);
    tensor_at(name, type, shape, data_.size());
    data_ += data;
    return *this;
  }
  // Only its entry in the list.
  GgufWriter& tensor_at(std::string_view name, uint32_t type, const std::vector<uint64_t>& shape,
                        uint64_t offset) {
    tensors_ += gguf_string(name) + number_bytes(static_cast<uint32_t>(shape.size()));
    for (size_t i = shape.size(); i-- > 0;) tensors_ += number_bytes(shape[i]);
    tensors_ += number_bytes(type) + number_bytes(offset);
    ++num_tensors_;
    return *this;
  }
  GgufWriter& data(const std::string& bytes) {
    data_ += bytes;
    return *this;
  }

  std::string str() const {
    std::string file = "GGUF" + number_bytes(version) + number_bytes(num_tensors_) +
                       number_bytes(num_keys_) + keys_ + tensors_;
    if (num_tensors_ > 0) file.resize((file.size() + alignment - 1) / alignment * alignment);
    return file + data_;
  }

 private:
  uint64_t num_keys_ = 0;
  uint64_t num_tensors_ = 0;
  std::string keys_;
  std::string tensors_;
  std::string data_;
};

}  // namespace quire
