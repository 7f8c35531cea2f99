#pragma once
// Writes a checkpoint's weights as Hugging Face's tools do: model.safetensors, or shards of a
// limited size with model.safetensors.index.json.
//
// Names and shapes are given at the start; the bytes follow tensor by tensor, so only the bytes of
// one write() are in memory. Errors: Error, naming the file, where the system refuses a write.
// Thread safety: one thread at a time.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

namespace quire {

struct WrittenTensor {
  std::string name;
  std::string dtype;  // as the format spells it: "BF16", "I32", ...
  std::vector<int64_t> shape;
  size_t bytes = 0;
};

// The largest shard that Hugging Face's tools write.
inline constexpr size_t kMaxShardBytes = 5'000'000'000;

class CheckpointWriter {
 public:
  // Into an existing folder. Throws Error where two tensors have one name. A tensor is never cut:
  // one of more than max_shard_bytes has a shard of its own.
  CheckpointWriter(std::filesystem::path folder, std::vector<WrittenTensor> tensors,
                   size_t max_shard_bytes = kMaxShardBytes);

  // The next bytes of the tensors, in their order; a call may end anywhere within one tensor.
  void write(std::span<const std::byte> bytes);
  // To be called when all bytes are written.
  void finish();

  size_t total_bytes() const { return total_bytes_; }
  int num_shards() const { return static_cast<int>(shards_.size()); }

 private:
  // Tensors [first, end).
  struct Shard {
    size_t first = 0;
    size_t end = 0;
    size_t bytes = 0;
  };

  void check_names() const;
  void cut_into_shards(size_t max_shard_bytes);
  std::filesystem::path shard_path(size_t shard) const;
  std::string header_of(const Shard& shard) const;
  void open_shard();
  void close_shard();
  void write_index() const;

  std::filesystem::path folder_;
  std::vector<WrittenTensor> tensors_;
  std::vector<Shard> shards_;
  size_t total_bytes_ = 0;
  size_t shard_ = 0;    // that is written
  size_t written_ = 0;  // of its data
  std::ofstream file_;
};

}  // namespace quire
