#pragma once
// A ScheduledBatch as bytes and back: what a step tells ranks in other processes.
//
// Two bytes "QB", a version, then each field in order: integers as varints (7 bits a byte, the low
// ones first; signed ones zigzag), floating point as its bits with the low byte first, lists with
// their length before them. A decode step of 256 sequences takes 2 to 3 KB. Requests are written
// once a batch, and only what ranks read of them: the engine keeps the id, the prompt's text, stop
// strings, the salt and what else is for outputs, and a decoded request has the defaults there.
// Thread safety: free functions of their arguments.
#include <cstddef>
#include <span>
#include <vector>

#include "request/scheduled_batch.h"

namespace quire {

std::vector<std::byte> encode_batch(const ScheduledBatch& batch);

// Throws Error for bytes of another version, and for any that encode_batch() does not write: cut
// off, too long, values out of their ranges, the same batch written otherwise. What it returns
// takes memory in proportion to the bytes. Left to who runs the batch is what follows from the
// batches before it and the model: whether token, block and sequence ids are ones of this engine,
// and whether chunks begin where their sequences are.
ScheduledBatch decode_batch(std::span<const std::byte> bytes);

}  // namespace quire
