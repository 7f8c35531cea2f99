#include "loader/checkpoint_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "base/ceil_div.h"
#include "base/check.h"
#include "quire/error.h"

namespace quire {
namespace {

// Data begins at a multiple of this, so that readers can map it.
constexpr size_t kHeaderAlignment = 8;

[[noreturn]] void fail_to_write(const std::filesystem::path& path) {
  throw Error(
      fmt::format("{}: the file cannot be written; is there room on the disk?", path.string()));
}

}  // namespace

CheckpointWriter::CheckpointWriter(std::filesystem::path folder, std::vector<WrittenTensor> tensors,
                                   size_t max_shard_bytes)
    : folder_(std::move(folder)), tensors_(std::move(tensors)) {
  check_names();
  cut_into_shards(max_shard_bytes);
  open_shard();
}

void CheckpointWriter::check_names() const {
  std::set<std::string_view> names;
  for (const WrittenTensor& tensor : tensors_) {
    if (names.insert(tensor.name).second) continue;
    throw Error(fmt::format(
        "{}: two tensors would have the name {}; expected each name once. Does the checkpoint hold "
        "a layer both as it is and quantised?",
        folder_.string(), tensor.name));
  }
}

void CheckpointWriter::cut_into_shards(size_t max_shard_bytes) {
  shards_.emplace_back();
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const size_t bytes = tensors_[i].bytes;
    if (shards_.back().bytes > 0 && shards_.back().bytes + bytes > max_shard_bytes) {
      shards_.push_back({.first = i, .end = i, .bytes = 0});
    }
    shards_.back().end = i + 1;
    shards_.back().bytes += bytes;
    total_bytes_ += bytes;
  }
}

std::filesystem::path CheckpointWriter::shard_path(size_t shard) const {
  if (shards_.size() == 1) return folder_ / "model.safetensors";
  return folder_ / fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, shards_.size());
}

std::string CheckpointWriter::header_of(const Shard& shard) const {
  nlohmann::ordered_json header = {{"__metadata__", {{"format", "pt"}}}};
  size_t begin = 0;
  for (size_t i = shard.first; i < shard.end; ++i) {
    const WrittenTensor& tensor = tensors_[i];
    header[tensor.name] = {{"dtype", tensor.dtype},
                           {"shape", tensor.shape},
                           {"data_offsets", {begin, begin + tensor.bytes}}};
    begin += tensor.bytes;
  }
  std::string text = header.dump();
  text.resize(round_up(text.size(), kHeaderAlignment), ' ');
  return text;
}

void CheckpointWriter::open_shard() {
  const std::string header = header_of(shards_[shard_]);
  const uint64_t length = header.size();
  file_.open(shard_path(shard_), std::ios::binary | std::ios::trunc);
  file_.write(reinterpret_cast<const char*>(&length), sizeof(length));
  file_.write(header.data(), static_cast<std::streamsize>(header.size()));
  if (!file_) fail_to_write(shard_path(shard_));
  written_ = 0;
}

void CheckpointWriter::close_shard() {
  check(written_ == shards_[shard_].bytes, "every byte of a shard's tensors is written");
  file_.close();
  if (!file_) fail_to_write(shard_path(shard_));
}

void CheckpointWriter::write(std::span<const std::byte> bytes) {
  if (!bytes.empty() && written_ == shards_[shard_].bytes) {
    close_shard();
    ++shard_;
    check(shard_ < shards_.size(), "only the bytes of the tensors are written");
    open_shard();
  }
  check(bytes.size() <= shards_[shard_].bytes - written_, "a call ends within one tensor");
  file_.write(reinterpret_cast<const char*>(bytes.data()),
              static_cast<std::streamsize>(bytes.size()));
  if (!file_) fail_to_write(shard_path(shard_));
  written_ += bytes.size();
}

void CheckpointWriter::finish() {
  close_shard();
  check(shard_ + 1 == shards_.size(), "every shard is written");
  if (shards_.size() > 1) write_index();
}

void CheckpointWriter::write_index() const {
  nlohmann::ordered_json index = {{"metadata", {{"total_size", total_bytes_}}},
                                  {"weight_map", nlohmann::ordered_json::object()}};
  for (size_t shard = 0; shard < shards_.size(); ++shard) {
    for (size_t i = shards_[shard].first; i < shards_[shard].end; ++i) {
      index["weight_map"][tensors_[i].name] = shard_path(shard).filename().string();
    }
  }
  const std::filesystem::path path = folder_ / "model.safetensors.index.json";
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << index.dump(2) << '\n';
  file.close();
  if (!file) fail_to_write(path);
}

}  // namespace quire
