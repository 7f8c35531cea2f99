#include "ops/cuda/decode_items.h"

#include <algorithm>
#include <functional>

namespace quire::ops {

int64_t write_decode_items(std::span<const int32_t> context_lens, const int32_t* query_start,
                           DecodeItem* items) {
  std::vector<DecodeItem> partial;  // a sequence's last chunk, where it is not whole
  DecodeItem* next = items;
  int32_t first_row = 0;
  int64_t count = 0;
  for (size_t seq = 0; seq < context_lens.size(); ++seq) {
    const int32_t context_len = context_lens[seq];
    DecodeItem item = {static_cast<int32_t>(seq), 0, first_row, context_len};
    for (; item.chunk < context_len / kDecodeChunk; ++item.chunk) *next++ = item;
    if (context_len % kDecodeChunk != 0) partial.push_back(item);
    const int32_t num_queries =
        query_start == nullptr ? 1 : query_start[seq + 1] - query_start[seq];
    first_row += static_cast<int32_t>(num_decode_items(context_len)) * num_queries;
    count += num_decode_items(context_len);
  }
  std::ranges::stable_sort(partial, std::greater{},
                           [](const DecodeItem& item) { return item.context_len % kDecodeChunk; });
  std::ranges::copy(partial, next);
  return count;
}

std::vector<DecodeItem> make_decode_items(std::span<const int32_t> context_lens,
                                          const int32_t* query_start) {
  int64_t count = 0;
  for (const int32_t context_len : context_lens) count += num_decode_items(context_len);
  std::vector<DecodeItem> items(static_cast<size_t>(count));
  write_decode_items(context_lens, query_start, items.data());
  return items;
}

}  // namespace quire::ops
