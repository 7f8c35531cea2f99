// Every kernel that takes a batch, and the entry that chooses among them, against attention in
// double over the whole context.
#include <functional>
#include <numeric>
#include <string>

#include "ops/cuda/attention/attention.cuh"
#include "ops/cuda/attention/prefill/prefill.cuh"
#include "ops/cuda/cuda_test_util.h"

namespace quire::ops {
namespace {

struct Sequence {
  int query_len;
  int context_len;
};

struct Case {
  std::string name = {};
  DType dtype = DType::kBFloat16;
  bool is_fp8 = false;
  DType float8 = DType::kFloat8E4M3;  // which, if so
  bool has_scales = false;            // of the cache's heads
  int num_heads = 4;
  int num_kv_heads = 2;
  int head_dim = 128;
  int block_size = 16;
  int64_t window = 0;
  int num_decode_seqs = 0;
  std::vector<Sequence> sequences = {};
};

// A batch on the device and what attention over it should give.
class Batch {
 public:
  Batch(const Case& sizes, std::mt19937& random);

  CudaPagedAttention args();
  void poison_out() { out_->poison(); }
  std::vector<std::byte> out_bytes() { return out_->download_bytes(); }
  // Every row near what is expected, and those of decode sequences untouched.
  void check_out();

 private:
  int64_t row_size() const { return int64_t{sizes_.num_heads} * sizes_.head_dim; }
  float scale() const { return 1.5f / std::sqrt(static_cast<float>(sizes_.head_dim)); }
  void make_cache(std::mt19937& random);
  void make_expected();
  // The position in the cache of element 0 of a key or value.
  size_t place(int seq, int position, int kv_head) const;
  std::vector<double> expected_row(int seq, int position, const float* q, int kv_head) const;

  Case sizes_;
  int num_tokens_ = 0;
  int64_t table_width_ = 0;
  std::vector<int32_t> query_start_{0};
  std::vector<int32_t> table_;
  std::vector<float> q_, keys_, values_;  // as their types hold them
  std::vector<float> key_scales_, value_scales_;
  std::vector<float> expected_;
  std::unique_ptr<DeviceElements> device_q_, device_keys_, device_values_, out_;
  std::unique_ptr<DeviceArray<float>> device_key_scales_, device_value_scales_;
  std::unique_ptr<DeviceArray<int32_t>> device_query_start_, device_context_lens_, device_table_;
  DeviceArray<int32_t> scratch_{std::vector<int32_t>(16, 0)};  // its first counters
};

Batch::Batch(const Case& sizes, std::mt19937& random) : sizes_(sizes) {
  std::vector<int32_t> context_lens;
  for (const Sequence& sequence : sizes.sequences) {
    num_tokens_ += sequence.query_len;
    query_start_.push_back(num_tokens_);
    context_lens.push_back(sequence.context_len);
  }
  // Rows of q are part of rows of qkv.
  const int64_t stride = row_size() + int64_t{2} * sizes.num_kv_heads * sizes.head_dim;
  q_ = rounded(sizes.dtype, random_values(static_cast<size_t>(num_tokens_ * stride), random));
  make_cache(random);
  make_expected();
  device_q_ = std::make_unique<DeviceElements>(sizes.dtype, q_);
  out_ =
      std::make_unique<DeviceElements>(sizes.dtype, static_cast<size_t>(num_tokens_ * row_size()));
  device_query_start_ = std::make_unique<DeviceArray<int32_t>>(query_start_);
  device_context_lens_ = std::make_unique<DeviceArray<int32_t>>(context_lens);
}

// Blocks in random order; NaN in what no sequence has written, and -1 for blocks that none has.
void Batch::make_cache(std::mt19937& random) {
  const int block_size = sizes_.block_size;
  int num_blocks = 0;
  for (const Sequence& sequence : sizes_.sequences) {
    const int blocks = (sequence.context_len + block_size - 1) / block_size;
    table_width_ = std::max<int64_t>(table_width_, blocks + 1);
    num_blocks += blocks;
  }
  num_blocks += 2;
  std::vector<int32_t> blocks(static_cast<size_t>(num_blocks));
  std::iota(blocks.begin(), blocks.end(), 0);
  std::shuffle(blocks.begin(), blocks.end(), random);
  table_.assign(sizes_.sequences.size() * static_cast<size_t>(table_width_), -1);
  const auto elements =
      static_cast<size_t>(int64_t{num_blocks} * sizes_.num_kv_heads * block_size * sizes_.head_dim);
  keys_.assign(elements, std::numeric_limits<float>::quiet_NaN());
  values_ = keys_;
  size_t next = 0;
  for (size_t seq = 0; seq < sizes_.sequences.size(); ++seq) {
    for (int p = 0; p < sizes_.sequences[seq].context_len; ++p) {
      if (p % block_size == 0) {
        table_[seq * static_cast<size_t>(table_width_) + static_cast<size_t>(p / block_size)] =
            blocks[next++];
      }
      for (int head = 0; head < sizes_.num_kv_heads; ++head) {
        const size_t begin = place(static_cast<int>(seq), p, head);
        const auto size = static_cast<size_t>(sizes_.head_dim);
        std::ranges::copy(random_values(size, random), &keys_[begin]);
        std::ranges::copy(random_values(size, random), &values_[begin]);
      }
    }
  }
  key_scales_.assign(static_cast<size_t>(sizes_.num_kv_heads), 1.0f);
  value_scales_ = key_scales_;
  if (sizes_.has_scales) {
    key_scales_ = random_scales(key_scales_.size(), random);
    value_scales_ = random_scales(key_scales_.size(), random);
    device_key_scales_ = std::make_unique<DeviceArray<float>>(key_scales_);
    device_value_scales_ = std::make_unique<DeviceArray<float>>(value_scales_);
  }
  const DType dtype = sizes_.is_fp8 ? sizes_.float8 : sizes_.dtype;
  keys_ = rounded(dtype, keys_);
  values_ = rounded(dtype, values_);
  device_keys_ = std::make_unique<DeviceElements>(dtype, keys_);
  device_values_ = std::make_unique<DeviceElements>(dtype, values_);
  device_table_ = std::make_unique<DeviceArray<int32_t>>(table_);
}

size_t Batch::place(int seq, int position, int kv_head) const {
  const int32_t block =
      table_[static_cast<size_t>(seq * table_width_ + position / sizes_.block_size)];
  return static_cast<size_t>(((int64_t{block} * sizes_.num_kv_heads + kv_head) * sizes_.block_size +
                              position % sizes_.block_size) *
                             sizes_.head_dim);
}

CudaPagedAttention Batch::args() {
  CudaPagedAttention args = {};
  args.dtype = sizes_.dtype;
  args.q = device_q_->data();
  args.q_stride = row_size() + int64_t{2} * sizes_.num_kv_heads * sizes_.head_dim;
  args.out = out_->data();
  args.num_heads = sizes_.num_heads;
  args.scale = scale();
  args.sliding_window = sizes_.window;
  args.num_tokens = num_tokens_;
  args.num_seqs = static_cast<int64_t>(sizes_.sequences.size());
  for (const Sequence& sequence : sizes_.sequences) {
    args.max_query_len = std::max<int64_t>(args.max_query_len, sequence.query_len);
    args.max_context_len = std::max<int64_t>(args.max_context_len, sequence.context_len);
  }
  args.query_start = device_query_start_->data();
  args.context_lens = device_context_lens_->data();
  args.block_tables = device_table_->data();
  args.table_width = table_width_;
  args.num_decode_seqs = sizes_.num_decode_seqs;
  args.cache.dtype = device_keys_->dtype();
  args.cache.keys = device_keys_->data();
  args.cache.values = device_values_->data();
  args.cache.block_size = sizes_.block_size;
  args.cache.num_kv_heads = sizes_.num_kv_heads;
  args.cache.head_dim = sizes_.head_dim;
  args.scratch = scratch_.data();
  if (sizes_.has_scales) {
    args.scales = {.keys = device_key_scales_->data(), .values = device_value_scales_->data()};
  }
  return args;
}

std::vector<double> Batch::expected_row(int seq, int position, const float* q, int kv_head) const {
  const int first =
      sizes_.window > 0 ? std::max(0, position - static_cast<int>(sizes_.window) + 1) : 0;
  const auto head_dim = static_cast<size_t>(sizes_.head_dim);
  std::vector<double> weights;
  for (int p = first; p <= position; ++p) {
    const float* const key = &keys_[place(seq, p, kv_head)];
    double score = 0;
    for (size_t d = 0; d < head_dim; ++d) score += static_cast<double>(q[d]) * key[d];
    weights.push_back(score * scale() * key_scales_[static_cast<size_t>(kv_head)]);
  }
  const double maximum = *std::ranges::max_element(weights);
  double sum = 0;
  for (double& weight : weights) sum += weight = std::exp(weight - maximum);
  std::vector<double> row(head_dim);
  for (int p = first; p <= position; ++p) {
    const float* const value = &values_[place(seq, p, kv_head)];
    const double weight =
        weights[static_cast<size_t>(p - first)] / sum * value_scales_[static_cast<size_t>(kv_head)];
    for (size_t d = 0; d < head_dim; ++d) row[d] += weight * value[d];
  }
  return row;
}

void Batch::make_expected() {
  const int64_t stride = static_cast<int64_t>(q_.size()) / num_tokens_;
  const int group = sizes_.num_heads / sizes_.num_kv_heads;
  for (int seq = 0; seq < static_cast<int>(sizes_.sequences.size()); ++seq) {
    const Sequence& sequence = sizes_.sequences[static_cast<size_t>(seq)];
    for (int i = 0; i < sequence.query_len; ++i) {
      const float* const q =
          &q_[static_cast<size_t>((query_start_[static_cast<size_t>(seq)] + i) * stride)];
      const int position = sequence.context_len - sequence.query_len + i;
      for (int head = 0; head < sizes_.num_heads; ++head) {
        const std::vector<double> row =
            position < 0 ? std::vector<double>(static_cast<size_t>(sizes_.head_dim))
                         : expected_row(seq, position, q + head * sizes_.head_dim, head / group);
        expected_.insert(expected_.end(), row.begin(), row.end());
      }
    }
  }
}

void Batch::check_out() {
  const double tolerance = sizes_.dtype == DType::kFloat32   ? 1e-5
                           : sizes_.dtype == DType::kFloat16 ? 2e-3
                                                             : 1.5e-2;
  const std::vector<float> out = out_->download();
  for (int seq = 0; seq < static_cast<int>(sizes_.sequences.size()); ++seq) {
    const Sequence& sequence = sizes_.sequences[static_cast<size_t>(seq)];
    for (int i = 0; i < sequence.query_len; ++i) {
      const int64_t token = query_start_[static_cast<size_t>(seq)] + i;
      for (int head = 0; head < sizes_.num_heads; ++head) {
        const float* const actual =
            &out[static_cast<size_t>(token * row_size() + int64_t{head} * sizes_.head_dim)];
        if (seq < sizes_.num_decode_seqs) {
          ASSERT_TRUE(std::isnan(actual[0])) << "decode sequence " << seq;
          continue;
        }
        if (sequence.context_len == 0) continue;
        const std::span<const float> expected(
            &expected_[static_cast<size_t>(token * row_size() + int64_t{head} * sizes_.head_dim)],
            static_cast<size_t>(sizes_.head_dim));
        ASSERT_TRUE(is_close_l2({actual, expected.size()}, expected, tolerance))
            << "sequence " << seq << ", query " << i << ", head " << head;
      }
    }
  }
}

class PrefillAttentionTest : public CudaTest, public testing::WithParamInterface<Case> {};

TEST_P(PrefillAttentionTest, IsAttention) {
  Batch batch(GetParam(), random());
  const CudaPagedAttention args = batch.args();
  using Kernel = std::function<bool(CudaStream&, const CudaPagedAttention&)>;
  const auto always = [](void (*kernel)(CudaStream&, const CudaPagedAttention&)) {
    return [kernel](CudaStream& stream, const CudaPagedAttention& a) {
      kernel(stream, a);
      return true;
    };
  };
  const std::pair<std::string, Kernel> kernels[] = {{"chosen", always(cuda::prefill_attention)},
                                                    {"hopper", cuda::hopper_attention},
                                                    {"flash", cuda::flash_attention},
                                                    {"plain", always(cuda::plain_attention)}};
  for (const auto& [name, kernel] : kernels) {
    SCOPED_TRACE(name);
    batch.poison_out();
    if (!kernel(stream(), args)) continue;
    synchronize();
    batch.check_out();
    if (HasFatalFailure()) return;
    const std::vector<std::byte> bytes = batch.out_bytes();
    batch.poison_out();
    kernel(stream(), args);
    synchronize();
    ASSERT_EQ(bytes, batch.out_bytes()) << "the same arguments give other bits";
  }
}

// Few sequences are cut into smaller tiles than many: a row's bits are the same.
TEST_F(CudaTest, FlashAttentionGivesARowTheSameBitsInAnyTile) {
  for (const bool is_fp8 : {false, true}) {
    Case sizes{.is_fp8 = is_fp8, .num_heads = 64, .num_kv_heads = 64};
    sizes.sequences = {{100, 100}, {129, 129}, {130, 311}};
    Batch batch(sizes, random());
    CudaPagedAttention args = batch.args();
    if (!cuda::flash_attention(stream(), args)) GTEST_SKIP() << "There are no such tensor cores.";
    synchronize();
    std::vector<std::byte> together = batch.out_bytes();
    batch.poison_out();
    args.num_seqs = 1;
    args.num_tokens = 100;
    cuda::flash_attention(stream(), args);
    synchronize();
    std::vector<std::byte> alone = batch.out_bytes();
    const size_t size = together.size() / 359 * 100;
    together.resize(size);
    alone.resize(size);
    EXPECT_EQ(together, alone);
  }
}

std::vector<Case> cases() {
  std::vector<Case> cases;
  const std::vector<Sequence> varied = {{17, 17}, {1, 1}, {129, 129}, {128, 128}, {64, 65}};
  const auto name_of_case = [](const Case& c) {
    return std::string(name_of(c.dtype)) + (c.is_fp8 ? "_fp8_" : "_") + std::to_string(c.head_dim);
  };
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16, DType::kFloat32}) {
    for (const bool is_fp8 : {false, true}) {
      for (const int head_dim : {64, 96, 128, 256, 8, 80, 264}) {
        Case c{.dtype = dtype, .is_fp8 = is_fp8, .head_dim = head_dim, .sequences = varied};
        c.name = "sizes_" + name_of_case(c);
        cases.push_back(c);
        // Decode sequences in front, a prefix, a window, blocks of another size.
        c.num_decode_seqs = 2;
        c.sequences = {{1, 70}, {1, 5}, {33, 300}, {0, 0}, {150, 150}};
        c.block_size = 48;
        c.window = 40;
        c.name = "window_" + name_of_case(c);
        cases.push_back(c);
      }
    }
  }
  // Few rows and many keys: several blocks have the keys of the same rows, some of them none.
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    for (const bool is_fp8 : {false, true}) {
      for (const int head_dim : {64, 96, 128, 256}) {
        Case c{.dtype = dtype, .is_fp8 = is_fp8, .head_dim = head_dim, .num_decode_seqs = 1};
        c.sequences = {{1, 3}, {20, 1500}, {1, 1100}, {0, 0}, {5, 5}, {33, 1999}};
        c.name = "few_of_many_" + name_of_case(c);
        cases.push_back(c);
        c.window = 300;
        c.name += "_window";
        cases.push_back(c);
      }
    }
  }
  // Enough blocks for the tiles that a device is filled with.
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    for (const bool is_fp8 : {false, true}) {
      for (const int head_dim : {64, 96, 128}) {
        Case c{.dtype = dtype, .is_fp8 = is_fp8, .num_heads = 64, .num_kv_heads = 64};
        c.head_dim = head_dim;
        c.window = 90;
        c.sequences = {{100, 100}, {129, 129}, {130, 311}};
        c.name = "many_heads_" + name_of_case(c);
        cases.push_back(c);
      }
    }
  }
  // Both kinds of float8 with scales of heads, in each of the kernels.
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16, DType::kFloat32}) {
    for (const DType float8 : {DType::kFloat8E4M3, DType::kFloat8E5M2}) {
      for (const bool has_scales : {false, true}) {
        for (const int head_dim : {64, 128, 256, 80}) {
          Case c{.dtype = dtype, .is_fp8 = true, .float8 = float8, .has_scales = has_scales};
          c.head_dim = head_dim;
          c.sequences = varied;
          const std::string kind =
              std::string(name_of(float8)) + (has_scales ? "_scales_" : "_") + name_of_case(c);
          c.name = "sizes_of_" + kind;
          cases.push_back(c);
          c.sequences = {{20, 1500}, {1, 1100}};
          c.name = "few_of_" + kind;
          cases.push_back(c);
          if (head_dim > 128) continue;
          c.num_heads = c.num_kv_heads = 64;
          c.sequences = {{100, 100}, {129, 129}, {130, 311}};
          c.name = "many_heads_of_" + kind;
          cases.push_back(c);
        }
      }
    }
  }
  for (const int block_size : {16, 32, 112, 256}) {
    cases.push_back({.name = "long_blocks_of_" + std::to_string(block_size),
                     .block_size = block_size,
                     .sequences = {{1000, 1000}, {100, 613}, {1, 500}, {2, 2}}});
  }
  for (const int group : {1, 3, 7, 16}) {
    cases.push_back({.name = "group_of_" + std::to_string(group),
                     .num_heads = 2 * group,
                     .sequences = {{130, 130}, {5, 77}, {40, 200}}});
  }
  for (const int64_t window : {1, 63, 64, 65, 128}) {
    cases.push_back({.name = "window_of_" + std::to_string(window),
                     .window = window,
                     .sequences = {{300, 300}, {1, 301}, {200, 500}}});
  }
  Case many{.name = "many_sequences", .num_heads = 2, .num_kv_heads = 1, .head_dim = 64};
  for (int i = 0; i < 1100; ++i) many.sequences.push_back({1 + i % 7, 1 + i % 7 + i % 11});
  many.sequences[600] = {0, 0};
  many.sequences[601] = {1, 0};  // a padding row
  cases.push_back(many);
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Batches, PrefillAttentionTest, testing::ValuesIn(cases()),
                         [](const testing::TestParamInfo<Case>& test) { return test.param.name; });

}  // namespace
}  // namespace quire::ops
