// Kernels that are launched while the one before them still runs, in the order of a layer: what
// they make must not depend on how far they overlap.
#include <functional>
#include <optional>
#include <string>

#include "ops/cuda/cuda_test_util.h"
#include "ops/cuda/decode_items.h"
#include "ops/cuda/kernels.h"

namespace quire::ops {
namespace {

constexpr DType kType = DType::kBFloat16;
constexpr int kHeads = 8;
constexpr int kKvHeads = 4;
constexpr int kHeadDim = 128;
constexpr int kQkvWidth = (kHeads + 2 * kKvHeads) * kHeadDim;
constexpr int kHidden = kHeads * kHeadDim;
constexpr int kBlockSize = 16;
constexpr int kRounds = 50;

struct Sequence {
  int context_len;
  int query_len;
};

size_t to_size(int64_t value) {
  return static_cast<size_t>(value);
}

std::vector<float> around_one(int64_t count, std::mt19937& random) {
  std::vector<float> values = random_values(to_size(count), random, 0.1f);
  for (float& value : values) value += 1;
  return values;
}

// norm -> linear -> qk_norm_rope_cache -> paged_attention -> linear, over and over on the same
// activations and the same slots of the cache.
class Chain {
 public:
  Chain(CudaStream& stream, const std::vector<Sequence>& sequences, std::mt19937& random)
      : stream_(stream) {
    place(sequences);
    first_x_ = random_values(to_size(tokens_ * kHidden), random);
    first_cache_ = random_values(to_size(num_blocks_ * kKvHeads * kBlockSize * kHeadDim), random);
    x_.emplace(kType, first_x_);
    normed_.emplace(kType, to_size(tokens_ * kHidden));
    qkv_.emplace(kType, to_size(tokens_ * kQkvWidth));
    attended_.emplace(kType, to_size(tokens_ * kHidden));
    keys_.emplace(kType, first_cache_);
    values_.emplace(kType, first_cache_);
    norm_.emplace(around_one(kHidden, random));
    q_norm_.emplace(around_one(kHeadDim, random));
    k_norm_.emplace(around_one(kHeadDim, random));
    cos_sin_.emplace(random_values(to_size(int64_t{longest_} * kHeadDim), random, 0.7f));
    qkv_weight_.emplace(kType, random_values(to_size(kQkvWidth * kHidden), random, 0.03f));
    o_weight_.emplace(kType, random_values(to_size(kHidden * kHidden), random, 0.03f));
    scratch_.emplace(to_size(
        cuda::paged_attention_scratch_bytes(max_items_, num_seqs_, 1, kHeads, kKvHeads, kHeadDim)));
    scratch_->zero();
  }

  // The bytes of all that the chain leaves, `after` being called after each launch.
  std::vector<std::vector<std::byte>> run(const std::function<void()>& after) {
    x_->upload(first_x_);
    keys_->upload(first_cache_);
    values_->upload(first_cache_);
    normed_->poison();
    qkv_->poison();
    attended_->poison();
    for (int round = 0; round < kRounds; ++round) {
      cuda::rms_norm(stream_, {kType, x_->data(), nullptr, norm_->data(), 1e-6f, tokens_, kHidden,
                               normed_->data()});
      after();
      multiply(*normed_, *qkv_weight_, kQkvWidth, *qkv_);
      after();
      cuda::qk_norm_rope_cache(stream_, rope());
      after();
      cuda::paged_attention(stream_, attention());
      after();
      multiply(*attended_, *o_weight_, kHidden, *x_);
      after();
    }
    check_cuda(cudaStreamSynchronize(stream_.get()), "running kernels under test");
    return {x_->download_bytes(), keys_->download_bytes(), values_->download_bytes()};
  }

  bool is_finite() const {
    const std::vector<float> x = x_->download();
    return std::all_of(x.begin(), x.end(), [](float value) { return std::isfinite(value); });
  }

 private:
  // Decodes come first; each sequence has blocks of its own, in order.
  void place(const std::vector<Sequence>& sequences) {
    std::vector<int32_t> query_start = {0};
    std::vector<int32_t> context_lens;
    std::vector<int32_t> positions;
    std::vector<int64_t> slots;
    for (const Sequence& s : sequences) longest_ = std::max(longest_, s.context_len);
    table_width_ = (longest_ + kBlockSize - 1) / kBlockSize;
    for (const Sequence& s : sequences) {
      const int64_t first_slot = num_seqs_ * table_width_ * kBlockSize;
      for (int position = s.context_len - s.query_len; position < s.context_len; ++position) {
        positions.push_back(position);
        slots.push_back(first_slot + position);
      }
      if (s.query_len == 1) {
        ++num_decodes_;
      }
      context_lens.push_back(s.context_len);
      query_start.push_back(query_start.back() + s.query_len);
      max_query_len_ = std::max<int64_t>(max_query_len_, s.query_len);
      ++num_seqs_;
    }
    tokens_ = query_start.back();
    num_blocks_ = num_seqs_ * table_width_;
    std::vector<int32_t> table(to_size(num_blocks_));
    for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int32_t>(i);
    const std::vector<DecodeItem> items =
        make_decode_items({context_lens.data(), to_size(num_decodes_)});
    max_items_ = static_cast<int64_t>(items.size());
    query_start_.emplace(query_start);
    context_lens_.emplace(context_lens);
    table_.emplace(table);
    items_.emplace(items);
    num_items_.emplace(std::vector<int32_t>{static_cast<int32_t>(max_items_)});
    positions_.emplace(positions);
    slots_.emplace(slots);
  }

  void multiply(DeviceElements& in, DeviceElements& weight, int64_t n, DeviceElements& out) {
    cuda::linear(stream_, {.dtype = kType,
                           .in = in.data(),
                           .in_stride = kHidden,
                           .weight = {.format = kType, .data = weight.data()},
                           .rows = tokens_,
                           .n = n,
                           .k = kHidden,
                           .bias = nullptr,
                           .out = out.data(),
                           .out_stride = n,
                           .out_dtype = kType,
                           .silu_and_mul = false});
  }

  CudaKvCache cache() {
    return {kType, keys_->data(), values_->data(), kBlockSize, kKvHeads, kHeadDim};
  }
  CudaQkNormRopeCache rope() {
    return {.dtype = kType,
            .qkv = qkv_->data(),
            .num_heads = kHeads,
            .q_norm = q_norm_->data(),
            .k_norm = k_norm_->data(),
            .eps = 1e-6f,
            .cos_sin = cos_sin_->data(),
            .rotary_dim = kHeadDim,
            .num_tokens = tokens_,
            .positions = positions_->data(),
            .slot_mapping = slots_->data(),
            .cache = cache()};
  }
  CudaPagedAttention attention() {
    return {.dtype = kType,
            .q = qkv_->data(),
            .q_stride = kQkvWidth,
            .out = attended_->data(),
            .num_heads = kHeads,
            .scale = 0.09f,
            .sliding_window = 0,
            .num_tokens = tokens_,
            .num_seqs = num_seqs_,
            .max_query_len = max_query_len_,
            .max_context_len = longest_,
            .query_start = query_start_->data(),
            .context_lens = context_lens_->data(),
            .block_tables = table_->data(),
            .table_width = table_width_,
            .num_decode_seqs = num_decodes_,
            .decode_items = items_->data(),
            .num_decode_items = num_items_->data(),
            .max_decode_items = max_items_,
            .cache = cache(),
            .scratch = scratch_->data(),
            .max_decode_rows = max_items_};
  }

  CudaStream& stream_;
  int64_t tokens_ = 0;
  int64_t num_seqs_ = 0;
  int64_t num_decodes_ = 0;
  int64_t max_query_len_ = 0;
  int64_t table_width_ = 0;
  int64_t num_blocks_ = 0;
  int64_t max_items_ = 0;
  int longest_ = 0;
  std::vector<float> first_x_, first_cache_;
  std::optional<DeviceElements> x_, normed_, qkv_, attended_, keys_, values_, qkv_weight_,
      o_weight_;
  std::optional<DeviceArray<float>> norm_, q_norm_, k_norm_, cos_sin_;
  std::optional<DeviceArray<int32_t>> query_start_, context_lens_, table_, num_items_, positions_;
  std::optional<DeviceArray<DecodeItem>> items_;
  std::optional<DeviceArray<int64_t>> slots_;
  std::optional<DeviceArray<std::byte>> scratch_;
};

class LaunchOrderCudaTest : public CudaTest {
 protected:
  void expect_same(const std::vector<Sequence>& sequences) {
    SCOPED_TRACE(std::to_string(sequences.size()) + " sequences, the first with " +
                 std::to_string(sequences[0].query_len) + " queries");
    Chain chain(stream(), sequences, random());
    const auto one_by_one = chain.run([this] { synchronize(); });
    EXPECT_TRUE(chain.is_finite());
    for (int repeat = 0; repeat < 5; ++repeat) {
      EXPECT_TRUE(chain.run([] {}) == one_by_one) << "repeat " << repeat;
    }
  }
};

TEST_F(LaunchOrderCudaTest, DecodesAreTheSameOneByOne) {
  expect_same({{1, 1}});
  expect_same({{700, 1}});
  expect_same({{300, 1}, {17, 1}, {1025, 1}, {256, 1}});
  expect_same(std::vector<Sequence>(40, {513, 1}));
}

TEST_F(LaunchOrderCudaTest, PromptsAreTheSameOneByOne) {
  expect_same({{5, 5}});
  expect_same({{2100, 20}});
  expect_same({{150, 150}, {400, 90}});
}

TEST_F(LaunchOrderCudaTest, BothTogetherAreTheSameOneByOne) {
  expect_same({{300, 1}, {17, 1}, {130, 64}, {9, 9}});
}

}  // namespace
}  // namespace quire::ops
