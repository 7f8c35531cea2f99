#pragma once
// A ScheduledBatch as bytes and back: what a step tells ranks in other processes.
//
// Two bytes "QB", a version, then each field in order: integers as varints (7 bits a byte, the low
// ones first; signed ones zigzag), floating point as its bits with the low byte first, lists with
// their length before them. A decode step of 256 sequences takes 2 to 3 KB. A batch holds each
// request once, and only the fields that ranks read. The engine keeps the id, the prompt's text,
// stop strings, the salt and the other fields that only outputs need; in a decoded request these
// have their defaults. Thread safety: free functions of their arguments.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "request/scheduled_batch.h"

namespace quire {

std::vector<std::byte> encode_batch(const ScheduledBatch& batch);

// Throws Error for bytes of another version and for bytes that encode_batch() never writes: cut
// off, too long, values out of their ranges, the same batch written otherwise. The result takes
// memory in proportion to the bytes. It does not check what depends on earlier batches and the
// model: whether token, block and sequence ids belong to this engine, and whether chunks begin
// where their sequences are. The caller that runs the batch has to.
// `loras`: gives the weights of Request::lora_id; without it Request::lora stays null.
using LoraById = std::function<std::shared_ptr<const LoraWeights>(uint64_t id)>;
ScheduledBatch decode_batch(std::span<const std::byte> bytes, const LoraById& loras = {});

}  // namespace quire
