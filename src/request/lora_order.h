#pragma once
// What node 0 tells the other nodes about adapters: to load one, and which ones to forget.
//
// Two bytes "QL" or "QF" begin them, where a batch has "QB". An order to load goes to the nodes
// before any batch with the adapter, and is answered. The adapters to forget go between batches,
// behind the last one that has them. Thread safety: free functions of their arguments.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace quire {

struct LoraOrder {
  uint64_t id = 0;           // Request::lora_id of those that use it
  std::string content_hash;  // of the files; those of every node have the same
  std::string path;          // of the adapter's folder, on every node

  bool operator==(const LoraOrder&) const = default;
};

std::vector<std::byte> encode_lora_order(const LoraOrder& order);
// Throws Error for bytes that encode_lora_order() does not write.
LoraOrder decode_lora_order(std::span<const std::byte> bytes);

// The ids of adapters that no later batch has.
std::vector<std::byte> encode_forgotten_loras(std::span<const uint64_t> ids);
// Whether bytes begin as these do, and not as a batch.
bool are_forgotten_loras(std::span<const std::byte> bytes);
// Throws Error for bytes that encode_forgotten_loras() does not write.
std::vector<uint64_t> decode_forgotten_loras(std::span<const std::byte> bytes);

}  // namespace quire
