#pragma once
// Writes the safetensors format, for tests.
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

struct FileTensor {
  std::string name;
  std::string dtype;  // as the format spells it
  std::vector<int64_t> shape;
  std::string bytes;
};

template <typename T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// One file; `padding` spaces make its data start at any alignment.
inline std::string to_safetensors(const std::vector<FileTensor>& tensors, size_t padding = 0) {
  std::string header = "{";
  std::string data;
  for (const FileTensor& tensor : tensors) {
    std::string shape;
    for (const int64_t dim : tensor.shape)
      shape += (shape.empty() ? "" : ",") + std::to_string(dim);
    const size_t begin = data.size();
    data += tensor.bytes;
    header += (header.size() > 1 ? "," : "") + ("\"" + tensor.name) + "\":{\"dtype\":\"" +
              tensor.dtype + "\",\"shape\":[" + shape + "],\"data_offsets\":[" +
              std::to_string(begin) + "," + std::to_string(data.size()) + "]}";
  }
  header += "}" + std::string(padding, ' ');
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + header + data;
}

}  // namespace quire
