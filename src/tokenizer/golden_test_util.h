#pragma once
// Reads tests/golden/tokenizer, whose large files are packed.
#include <lzma.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

namespace quire {

inline std::string read_golden_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline std::string unpack(const std::string& packed) {
  lzma_stream stream = LZMA_STREAM_INIT;
  if (lzma_stream_decoder(&stream, std::numeric_limits<std::uint64_t>::max(), 0) != LZMA_OK) {
    throw std::runtime_error("lzma_stream_decoder failed");
  }
  std::string out;
  std::vector<std::uint8_t> buffer(1 << 20);
  stream.next_in = reinterpret_cast<const std::uint8_t*>(packed.data());
  stream.avail_in = packed.size();
  lzma_ret rc = LZMA_OK;
  while (rc == LZMA_OK) {
    stream.next_out = buffer.data();
    stream.avail_out = buffer.size();
    rc = lzma_code(&stream, LZMA_FINISH);
    out.append(reinterpret_cast<const char*>(buffer.data()), buffer.size() - stream.avail_out);
  }
  lzma_end(&stream);
  if (rc != LZMA_STREAM_END) throw std::runtime_error("the packed golden is damaged");
  return out;
}

inline std::string read_maybe_packed(const std::filesystem::path& path) {
  const std::filesystem::path packed = path.string() + ".xz";
  return std::filesystem::exists(packed) ? unpack(read_golden_file(packed))
                                         : read_golden_file(path);
}

}  // namespace quire
