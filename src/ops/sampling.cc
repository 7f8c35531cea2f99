#include "ops/sampling.h"

#include "base/check.h"
#include "ops/cpu/sampling_cpu.h"

namespace quire::ops {
namespace {

void check_logits(const Tensor& logits, size_t num_rows) {
  check(logits.rank() == 2 && logits.dtype() == DType::kFloat32, "logits are float32[R, V]");
  check(static_cast<size_t>(logits.dim(0)) == num_rows, "one set of arguments for each row");
  check(logits.dim(1) >= 1, "the vocabulary is not empty");
}

std::span<float> row_of(const Tensor& logits, int64_t row) {
  return {logits.row<float>(row), static_cast<size_t>(logits.dim(1))};
}

// Calls body(sampler, row) for each row, on the stream's threads.
template <typename Body>
void for_each_row(Stream& stream, int64_t num_rows, const Body& body) {
  check(stream.device().type == DeviceType::kCpu, "sampling runs on the CPU");
  std::vector<RowSampler> samplers(static_cast<size_t>(stream.pool().size()));
  stream.pool().parallel_for(
      num_rows, [&](int64_t row, int thread) { body(samplers[static_cast<size_t>(thread)], row); });
}

}  // namespace

void sample(Stream& stream, const Tensor& logits, std::span<const SamplingRow> rows,
            std::span<SampledToken> out) {
  check(rows.size() == out.size(), "one result for each row");
  if (rows.empty()) return;
  check_logits(logits, rows.size());
  for_each_row(stream, logits.dim(0), [&](RowSampler& sampler, int64_t row) {
    const auto at = static_cast<size_t>(row);
    out[at] = sampler.sample(row_of(logits, row), rows[at]);
  });
}

void token_logprobs(Stream& stream, const Tensor& logits, std::span<const int32_t> token_ids,
                    int num_logprobs, std::span<std::vector<TokenLogprob>> out) {
  check(token_ids.size() == out.size(), "one result for each row");
  if (token_ids.empty()) return;
  check_logits(logits, token_ids.size());
  for_each_row(stream, logits.dim(0), [&](RowSampler& sampler, int64_t row) {
    const auto at = static_cast<size_t>(row);
    check(token_ids[at] >= 0 && token_ids[at] < logits.dim(1), "the token is in the vocabulary");
    out[at] = sampler.logprobs(row_of(logits, row), token_ids[at], num_logprobs);
  });
}

}  // namespace quire::ops
