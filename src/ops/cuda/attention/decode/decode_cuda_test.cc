// Decode attention over the paged cache against plain loops in double precision.
#include <cmath>
#include <numeric>
#include <string>

#include "ops/cuda/attention/attention.cuh"
#include "ops/cuda/cuda_test_util.h"
#include "ops/cuda/decode_items.h"

namespace quire::ops {
namespace {

struct Case {
  DType dtype = DType::kBFloat16;
  DType cache_dtype = DType::kBFloat16;
  int num_heads = 4;
  int num_kv_heads = 2;
  int head_dim = 128;
  int block_size = 16;
  int64_t window = 0;
  std::vector<int32_t> context_lens = {1025, 1, 15, 17, 129, 512, 513, 1023};
  std::vector<int32_t> num_queries = {};  // of each sequence; empty: one
  bool has_scales = false;                // of the cache's heads
};

std::string describe(const Case& sizes) {
  return std::string(name_of(sizes.dtype)) + " with " + std::string(name_of(sizes.cache_dtype)) +
         ", heads " + std::to_string(sizes.num_heads) + "/" + std::to_string(sizes.num_kv_heads) +
         " of " + std::to_string(sizes.head_dim) + ", blocks of " +
         std::to_string(sizes.block_size) + ", window " + std::to_string(sizes.window) +
         (sizes.num_queries.empty() ? "" : ", several queries") +
         (sizes.has_scales ? ", scales" : "");
}

// Rounding of the output, and of the probabilities to the type that they are multiplied in.
double tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16:
      return 8e-3;
    case DType::kFloat16:
      return 1.5e-3;
    default:
      return 1e-5;
  }
}

// A batch on the device and what attention over it should give.
class Batch {
 public:
  Batch(const Case& sizes, std::mt19937& random) : sizes_(sizes) {
    make_tables(random);
    make_cache(random);
    q_ = rounded(sizes.dtype,
                 random_values(static_cast<size_t>(num_rows() * q_stride()), random, 2.0f));
    device_q_ = std::make_unique<DeviceElements>(sizes.dtype, q_);
    out_ =
        std::make_unique<DeviceElements>(sizes.dtype, static_cast<size_t>(num_rows() * row_size()));
    const auto scratch_bytes = static_cast<size_t>(
        cuda::paged_attention_scratch_bytes(max_scratch_rows(), num_seqs(), max_queries(),
                                            sizes.num_heads, sizes.num_kv_heads, sizes.head_dim));
    scratch_ = std::make_unique<DeviceArray<std::byte>>(scratch_bytes);
    // Only the counters have to be zero, but which bytes they are is the kernels' business.
    scratch_->zero();
  }

  CudaPagedAttention args() {
    return {.dtype = sizes_.dtype,
            .q = device_q_->data(),
            .q_stride = q_stride(),
            .out = out_->data(),
            .num_heads = sizes_.num_heads,
            .scale = scale(),
            .sliding_window = sizes_.window,
            .num_tokens = num_rows(),
            .num_seqs = num_seqs(),
            .max_query_len = max_queries(),
            .max_context_len = *std::ranges::max_element(sizes_.context_lens),
            .query_start = query_start_->data(),
            .context_lens = device_context_lens_->data(),
            .block_tables = device_table_->data(),
            .table_width = table_width_,
            .num_decode_seqs = num_seqs(),
            .decode_items = device_items_->data(),
            .num_decode_items = num_items_->data(),
            .max_decode_items = max_items(),
            .cache = {.dtype = sizes_.cache_dtype,
                      .keys = device_keys_->data(),
                      .values = device_values_->data(),
                      .block_size = sizes_.block_size,
                      .num_kv_heads = sizes_.num_kv_heads,
                      .head_dim = sizes_.head_dim},
            .scratch = scratch_->data(),
            .max_decode_rows = max_scratch_rows(),
            .max_decode_queries = max_queries(),
            .scales = {.keys = device_key_scales_ ? device_key_scales_->data() : nullptr,
                       .values = device_value_scales_ ? device_value_scales_->data() : nullptr}};
  }

  // Only of the first sequence.
  CudaPagedAttention args_of_first() {
    const std::vector<DecodeItem> items =
        make_decode_items({sizes_.context_lens.data(), 1}, starts_.data());
    first_items_ = std::make_unique<DeviceArray<DecodeItem>>(items);
    num_first_items_ = std::make_unique<DeviceArray<int32_t>>(
        std::vector<int32_t>{static_cast<int32_t>(items.size())});
    CudaPagedAttention result = args();
    result.num_seqs = result.num_decode_seqs = 1;
    result.num_tokens = starts_[1];
    result.decode_items = first_items_->data();
    result.num_decode_items = num_first_items_->data();
    result.max_decode_items = static_cast<int64_t>(items.size());
    return result;
  }

  // With room for as much, and nothing there: a captured step's sequences may all be padding.
  CudaPagedAttention args_of_none() {
    no_items_ = std::make_unique<DeviceArray<int32_t>>(std::vector<int32_t>{0});
    CudaPagedAttention result = args();
    result.num_decode_items = no_items_->data();
    return result;
  }

  // Another order of the items, which must not matter.
  void shuffle_items(std::mt19937& random) {
    std::ranges::shuffle(items_, random);
    upload_items();
  }

  void poison_out() { out_->poison(); }
  std::vector<std::byte> out_bytes() { return out_->download_bytes(); }
  std::vector<std::byte> first_row_bytes() {
    std::vector<std::byte> bytes = out_bytes();
    bytes.resize(bytes.size() / static_cast<size_t>(num_rows()) * static_cast<size_t>(starts_[1]));
    return bytes;
  }

  testing::AssertionResult check_out() {
    std::vector<float> expected;
    std::vector<float> actual;
    const std::vector<float> out = out_->download();
    for (int64_t seq = 0; seq < num_seqs(); ++seq) {
      if (sizes_.context_lens[static_cast<size_t>(seq)] == 0) continue;  // padding
      const int32_t end = starts_[static_cast<size_t>(seq) + 1];
      for (int32_t query = starts_[static_cast<size_t>(seq)]; query < end; ++query) {
        for (int head = 0; head < sizes_.num_heads; ++head) {
          append_expected(seq, query, head, expected);
        }
        const auto row = out.begin() + query * row_size();
        actual.insert(actual.end(), row, row + row_size());
      }
    }
    return is_close(actual, expected, tolerance_of(sizes_.dtype));
  }

 private:
  // More than there are.
  int64_t max_items() const { return static_cast<int64_t>(items_.size()) + 3; }
  int64_t num_seqs() const { return static_cast<int64_t>(sizes_.context_lens.size()); }
  int64_t num_rows() const { return starts_.back(); }
  // More than any has, where some have several: captured steps have room for more.
  int64_t max_queries() const {
    if (sizes_.num_queries.empty()) return 1;
    return std::min<int64_t>(*std::ranges::max_element(sizes_.num_queries) + 2, kMaxDecodeQueries);
  }
  int64_t max_scratch_rows() const { return max_items() * max_queries(); }
  int64_t row_size() const { return int64_t{sizes_.num_heads} * sizes_.head_dim; }
  // Rows of q are part of rows of qkv.
  int64_t q_stride() const {
    return row_size() + int64_t{2} * sizes_.num_kv_heads * sizes_.head_dim;
  }
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(sizes_.head_dim)); }

  void make_tables(std::mt19937& random) {
    starts_.assign(static_cast<size_t>(num_seqs()) + 1, 0);
    for (size_t seq = 0; seq + 1 < starts_.size(); ++seq) {
      starts_[seq + 1] = starts_[seq] + (sizes_.num_queries.empty() ? 1 : sizes_.num_queries[seq]);
    }
    for (const int length : sizes_.context_lens) {
      const int blocks = (length + sizes_.block_size - 1) / sizes_.block_size;
      table_width_ = std::max<int64_t>(table_width_, blocks);
      num_blocks_ += blocks;
    }
    std::vector<int32_t> blocks(static_cast<size_t>(num_blocks_));
    std::iota(blocks.begin(), blocks.end(), 0);
    std::shuffle(blocks.begin(), blocks.end(), random);
    table_.assign(static_cast<size_t>(num_seqs() * table_width_), -1);
    size_t next = 0;
    for (int64_t seq = 0; seq < num_seqs(); ++seq) {
      const int length = sizes_.context_lens[static_cast<size_t>(seq)];
      for (int64_t i = 0; i * sizes_.block_size < length; ++i) {
        table_[static_cast<size_t>(seq * table_width_ + i)] = blocks[next++];
      }
    }
    items_ = make_decode_items(sizes_.context_lens, starts_.data());
    device_table_ = std::make_unique<DeviceArray<int32_t>>(table_);
    upload_items();
    num_items_ = std::make_unique<DeviceArray<int32_t>>(
        std::vector<int32_t>{static_cast<int32_t>(items_.size())});
    query_start_ = std::make_unique<DeviceArray<int32_t>>(starts_);
    device_context_lens_ = std::make_unique<DeviceArray<int32_t>>(sizes_.context_lens);
  }

  // With poison where there is room for more.
  void upload_items() {
    std::vector<DecodeItem> items = items_;
    items.resize(static_cast<size_t>(max_items()), {-1, -1, -1, -1});
    device_items_ = std::make_unique<DeviceArray<DecodeItem>>(items);
  }

  // NaN in what no sequence has written.
  void make_cache(std::mt19937& random) {
    keys_.assign(static_cast<size_t>(int64_t{num_blocks_} * sizes_.block_size *
                                     sizes_.num_kv_heads * sizes_.head_dim),
                 std::numeric_limits<float>::quiet_NaN());
    values_ = keys_;
    const auto size = static_cast<size_t>(sizes_.head_dim);
    for (int64_t seq = 0; seq < num_seqs(); ++seq) {
      for (int p = 0; p < sizes_.context_lens[static_cast<size_t>(seq)]; ++p) {
        for (int head = 0; head < sizes_.num_kv_heads; ++head) {
          std::ranges::copy(random_values(size, random), &keys_[place(seq, p, head)]);
          std::ranges::copy(random_values(size, random), &values_[place(seq, p, head)]);
        }
      }
    }
    keys_ = rounded(sizes_.cache_dtype, keys_);
    values_ = rounded(sizes_.cache_dtype, values_);
    key_scales_.assign(static_cast<size_t>(sizes_.num_kv_heads), 1.0f);
    value_scales_ = key_scales_;
    if (sizes_.has_scales) {
      key_scales_ = random_scales(key_scales_.size(), random);
      value_scales_ = random_scales(key_scales_.size(), random);
      device_key_scales_ = std::make_unique<DeviceArray<float>>(key_scales_);
      device_value_scales_ = std::make_unique<DeviceArray<float>>(value_scales_);
    }
    device_keys_ = std::make_unique<DeviceElements>(sizes_.cache_dtype, keys_);
    device_values_ = std::make_unique<DeviceElements>(sizes_.cache_dtype, values_);
  }

  // Of element 0 of a key or value in the cache.
  size_t place(int64_t seq, int position, int kv_head) const {
    const int64_t block =
        table_[static_cast<size_t>(seq * table_width_ + position / sizes_.block_size)];
    return static_cast<size_t>(((block * sizes_.num_kv_heads + kv_head) * sizes_.block_size +
                                position % sizes_.block_size) *
                               sizes_.head_dim);
  }

  void append_expected(int64_t seq, int64_t query, int head, std::vector<float>& expected) const {
    const auto queries_behind = static_cast<int>(starts_[static_cast<size_t>(seq) + 1] - 1 - query);
    const int length = sizes_.context_lens[static_cast<size_t>(seq)] - queries_behind;
    const int first = sizes_.window > 0 ? std::max(0, length - static_cast<int>(sizes_.window)) : 0;
    const int kv_head = head / (sizes_.num_heads / sizes_.num_kv_heads);
    const auto size = static_cast<size_t>(sizes_.head_dim);
    const float* q = &q_[static_cast<size_t>(query * q_stride() + int64_t{head} * sizes_.head_dim)];
    std::vector<double> out(size);
    double sum = 0;
    for (int p = first; p < length; ++p) {
      const float* key = &keys_[place(seq, p, kv_head)];
      const float* value = &values_[place(seq, p, kv_head)];
      double score = 0;
      for (size_t d = 0; d < size; ++d) score += static_cast<double>(q[d]) * key[d];
      score *= static_cast<double>(key_scales_[static_cast<size_t>(kv_head)]);
      const double weight = std::exp(score * static_cast<double>(scale()));
      sum += weight;
      for (size_t d = 0; d < size; ++d) out[d] += weight * value[d];
    }
    const double value_scale = value_scales_[static_cast<size_t>(kv_head)];
    for (const double element : out) {
      expected.push_back(static_cast<float>(element / sum * value_scale));
    }
  }

  Case sizes_;
  int num_blocks_ = 0;
  int64_t table_width_ = 1;
  std::vector<int32_t> table_;
  std::vector<int32_t> starts_;  // of each sequence's queries, and their end
  std::vector<DecodeItem> items_;
  std::vector<float> q_, keys_, values_;  // as their types hold them
  std::vector<float> key_scales_, value_scales_;
  std::unique_ptr<DeviceElements> device_q_, device_keys_, device_values_, out_;
  std::unique_ptr<DeviceArray<float>> device_key_scales_, device_value_scales_;
  std::unique_ptr<DeviceArray<int32_t>> query_start_, device_context_lens_, device_table_,
      num_items_, num_first_items_, no_items_;
  std::unique_ptr<DeviceArray<DecodeItem>> device_items_, first_items_;
  std::unique_ptr<DeviceArray<std::byte>> scratch_;
};

class AttentionDecodeCudaTest : public CudaTest {
 protected:
  void run(const Case& sizes) {
    SCOPED_TRACE(describe(sizes));
    Batch batch(sizes, random());
    batch.poison_out();
    cuda::decode_attention(stream(), batch.args());
    synchronize();
    ASSERT_TRUE(batch.check_out());

    // The same bits again, and without the other sequences.
    const std::vector<std::byte> bytes = batch.out_bytes();
    const std::vector<std::byte> first_row = batch.first_row_bytes();
    batch.poison_out();
    cuda::decode_attention(stream(), batch.args());
    synchronize();
    ASSERT_EQ(batch.out_bytes(), bytes);
    batch.poison_out();
    batch.shuffle_items(random());
    cuda::decode_attention(stream(), batch.args_of_none());
    cuda::decode_attention(stream(), batch.args());
    synchronize();
    ASSERT_EQ(batch.out_bytes(), bytes) << "in another order, after a batch of nothing";
    batch.poison_out();
    cuda::decode_attention(stream(), batch.args_of_first());
    synchronize();
    ASSERT_EQ(batch.first_row_bytes(), first_row);
  }
};

TEST_F(AttentionDecodeCudaTest, TakesBothKindsOfFloat8WithScalesOfHeads) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16, DType::kFloat32}) {
    for (const DType cache_dtype : {DType::kFloat8E4M3, DType::kFloat8E5M2}) {
      for (const int head_dim : {40, 64, 96, 128, 256}) {
        for (const bool has_scales : {false, true}) {
          Case sizes = {.dtype = dtype, .cache_dtype = cache_dtype, .head_dim = head_dim};
          sizes.has_scales = has_scales;
          run(sizes);
          sizes.num_heads = 24;
          run(sizes);
          sizes.num_queries = {3, 1, 2, 1, 3, 3, 1, 2};
          run(sizes);
        }
      }
    }
  }
}

TEST_F(AttentionDecodeCudaTest, TakesEveryTypeAndHeadSize) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16, DType::kFloat32}) {
    for (const DType cache_dtype : {dtype, DType::kFloat8E4M3}) {
      for (const int head_dim : {8, 40, 64, 80, 96, 128, 192, 256}) {
        run({.dtype = dtype, .cache_dtype = cache_dtype, .head_dim = head_dim});
      }
    }
  }
}

TEST_F(AttentionDecodeCudaTest, TakesEveryGroup) {
  for (const DType cache_dtype : {DType::kBFloat16, DType::kFloat8E4M3}) {
    for (const int head_dim : {64, 128, 256, 72}) {
      for (const int group : {1, 3, 5, 8, 9, 16, 17, 40}) {
        run({.cache_dtype = cache_dtype,
             .num_heads = 3 * group,
             .num_kv_heads = 3,
             .head_dim = head_dim,
             .context_lens = {700, 0, 37, 0, 512}});
      }
    }
  }
}

TEST_F(AttentionDecodeCudaTest, TakesEveryBlockSizeAndWindow) {
  for (const DType cache_dtype : {DType::kBFloat16, DType::kFloat8E4M3}) {
    for (const int head_dim : {128, 24}) {
      for (const int block_size : {16, 48, 64, 256}) {
        for (const int64_t window : {0, 1, 15, 16, 187, 188, 189, 512, 1000, 1 << 30}) {
          run({.cache_dtype = cache_dtype,
               .head_dim = head_dim,
               .block_size = block_size,
               .window = window,
               .context_lens = {700, 17, 255}});
        }
      }
    }
  }
}

// Chunks of which some queries see nothing, at the end and, with a window, at the beginning.
TEST_F(AttentionDecodeCudaTest, TakesSeveralQueriesOfASequence) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16, DType::kFloat32}) {
    for (const DType cache_dtype : {dtype, DType::kFloat8E4M3}) {
      for (const int head_dim : {40, 64, 96, 128, 256}) {
        for (const int64_t window : {0, 1, 16, 509, 600}) {
          run({.dtype = dtype,
               .cache_dtype = cache_dtype,
               .head_dim = head_dim,
               .window = window,
               .context_lens = {1029, 1, 0, 17, 513, 528, 40, 1024, 0, 1540},
               .num_queries = {9, 1, 0, 17, 4, 17, 2, 5, 0, 8}});
        }
      }
    }
  }
}

TEST_F(AttentionDecodeCudaTest, TakesSeveralQueriesOfEveryGroup) {
  for (const DType cache_dtype : {DType::kBFloat16, DType::kFloat8E4M3}) {
    for (const int head_dim : {64, 128, 256, 72}) {
      for (const int group : {1, 2, 3, 4, 5, 8, 9, 16, 17}) {
        run({.cache_dtype = cache_dtype,
             .num_heads = 2 * group,
             .num_kv_heads = 2,
             .head_dim = head_dim,
             .context_lens = {700, 0, 37, 514, 512},
             .num_queries = {5, 0, 3, 4, 1}});
      }
    }
  }
}

// The same bits whatever other sequences there are, and units after a block's first.
TEST_F(AttentionDecodeCudaTest, TakesSeveralQueriesOfManySequences) {
  std::vector<int32_t> context_lens, num_queries;
  for (int i = 0; i < 70; ++i) {
    num_queries.push_back(1 + static_cast<int32_t>(random()() % 9));
    context_lens.push_back(num_queries.back() + static_cast<int32_t>(random()() % 1100));
  }
  for (const DType cache_dtype : {DType::kBFloat16, DType::kFloat8E4M3}) {
    for (const int num_heads : {16, 32}) {
      run({.cache_dtype = cache_dtype,
           .num_heads = num_heads,
           .num_kv_heads = 8,
           .context_lens = context_lens,
           .num_queries = num_queries});
    }
  }
}

// Units after a block's first, in rings of every depth.
TEST_F(AttentionDecodeCudaTest, TakesMoreUnitsThanBlocks) {
  std::vector<int> context_lens;
  for (int i = 0; i < 70; ++i) context_lens.push_back(1 + static_cast<int>(random()() % 560));
  for (const DType cache_dtype : {DType::kBFloat16, DType::kFloat8E4M3}) {
    for (const int head_dim : {64, 96, 128, 256}) {
      Case sizes = {.cache_dtype = cache_dtype,
                    .head_dim = head_dim,
                    .block_size = 32,
                    .context_lens = context_lens};
      run(sizes);
      sizes.window = 300;
      run(sizes);
      sizes.num_heads = 16 * sizes.num_kv_heads;
      run(sizes);
    }
  }
}

// A small cache stays in the L2 cache, so that a tile is there soon after the place for it is free.
TEST_F(AttentionDecodeCudaTest, RepeatsBitForBitWhereTilesComeFast) {
  constexpr int kRuns = 200;
  std::vector<int> context_lens;
  for (int i = 0; i < 70; ++i) context_lens.push_back(1 + static_cast<int>(random()() % 560));
  for (const DType cache_dtype : {DType::kBFloat16, DType::kFloat8E4M3}) {
    for (const int head_dim : {64, 128, 256}) {
      const Case sizes = {.cache_dtype = cache_dtype,
                          .num_heads = 32,
                          .num_kv_heads = 2,
                          .head_dim = head_dim,
                          .block_size = 32,
                          .context_lens = context_lens};
      SCOPED_TRACE(describe(sizes));
      Batch batch(sizes, random());
      std::vector<std::byte> first;
      for (int i = 0; i < kRuns; ++i) {
        batch.poison_out();
        batch.shuffle_items(random());
        cuda::decode_attention(stream(), batch.args());
        synchronize();
        if (i == 0) first = batch.out_bytes();
        ASSERT_EQ(batch.out_bytes(), first) << "run " << i;
      }
    }
  }
}

TEST_F(AttentionDecodeCudaTest, TakesManySequencesAndLongOnes) {
  for (const DType cache_dtype : {DType::kBFloat16, DType::kFloat8E4M3}) {
    std::vector<int> context_lens;
    for (int i = 0; i < 131; ++i) context_lens.push_back(1 + static_cast<int>(random()() % 600));
    run({.cache_dtype = cache_dtype, .context_lens = context_lens});
    run({.cache_dtype = cache_dtype, .num_heads = 2, .context_lens = {10007}});
  }
}

}  // namespace
}  // namespace quire::ops
