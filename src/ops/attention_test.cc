// qk_norm_rope_cache and paged_attention against plain attention over the whole sequence in double,
// and bit for bit against themselves under other schedules, block sizes and threads.
#include "ops/attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/sanitized_test_util.h"
#include "ops/op_test_util.h"

namespace quire::ops {
namespace {

struct Shape {
  int num_heads, num_kv_heads, head_dim, rotary_dim;
  int64_t window;
  bool norms;
  DType dtype;
  bool has_scales = false;  // of the cache's heads
};

// A sequence's q, k and v as a model's projection would give them, for every position.
struct Sequence {
  OwnedTensor<float> qkv;
  int64_t length;
  std::vector<int32_t> blocks;
  int64_t cached = 0;
};

class Model {
 public:
  Model(const Shape& shape, int64_t max_length, std::mt19937& random)
      : shape_(shape),
        q_norm_(random_tensor({shape.head_dim}, random)),
        k_norm_(random_tensor({shape.head_dim}, random)),
        cos_sin_({max_length, shape.rotary_dim}) {
    std::uniform_real_distribution<float> scale(0.05f, 3.0f);
    for (int head = 0; head < shape.num_kv_heads; ++head) {
      key_scales_.push_back(shape.has_scales ? scale(random) : 1.0f);
      value_scales_.push_back(shape.has_scales ? scale(random) : 1.0f);
    }
    for (int64_t p = 0; p < max_length; ++p) {
      for (int64_t i = 0; i < shape.rotary_dim / 2; ++i) {
        const double angle = static_cast<double>(p) *
                             std::pow(1e4, -2.0 * static_cast<double>(i) / shape.rotary_dim);
        cos_sin_.at(p, i) = static_cast<float>(std::cos(angle));
        cos_sin_.at(p, i + shape.rotary_dim / 2) = static_cast<float>(std::sin(angle));
      }
    }
  }

  const Shape& shape() const { return shape_; }
  int64_t width() const {
    return int64_t{shape_.num_heads + 2 * shape_.num_kv_heads} * shape_.head_dim;
  }
  int64_t q_width() const { return int64_t{shape_.num_heads} * shape_.head_dim; }
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(shape_.head_dim)); }
  QkNormRope params() {
    QkNormRope params;
    if (shape_.norms) {
      params.q_norm = q_norm_.tensor();
      params.k_norm = k_norm_.tensor();
    }
    params.cos_sin = cos_sin_.tensor();
    return params;
  }

  // Norm and rotation of one head in double.
  std::vector<double> rotated(const float* x, bool is_key, int64_t position) {
    std::vector<double> head(x, x + shape_.head_dim);
    if (shape_.norms) {
      double squares = 0;
      for (double value : head) squares += value * value;
      const double factor = 1 / std::sqrt(squares / shape_.head_dim + 1e-6f);
      const auto& norm = (is_key ? k_norm_ : q_norm_).values();
      for (size_t i = 0; i < head.size(); ++i) head[i] *= factor * norm[i];
    }
    const auto half = static_cast<size_t>(shape_.rotary_dim / 2);
    for (size_t i = 0; i < half; ++i) {
      const double c = cos_sin_.at(position, static_cast<int64_t>(i));
      const double s = cos_sin_.at(position, static_cast<int64_t>(i + half));
      const double low = head[i], high = head[i + half];
      head[i] = low * c - high * s;
      head[i + half] = high * c + low * s;
    }
    return head;
  }

  // The cache, with the scales of its heads.
  KvCacheView with_scales(KvCacheView cache) const {
    if (shape_.has_scales) {
      cache.key_scales = key_scales_.data();
      cache.value_scales = value_scales_.data();
    }
    return cache;
  }

  // A key or value as the cache holds it.
  void round(std::vector<double>& head, float scale) const {
    double largest = 0;
    for (double value : head) largest = std::max(largest, std::fabs(value));
    for (double& value : head) {
      if (shape_.dtype == DType::kBFloat16) {
        value = static_cast<float>(BFloat16(static_cast<float>(value)));
      } else if (shape_.dtype == DType::kFloat8E4M3) {
        value = static_cast<float>(Float8E4M3(static_cast<float>(value / scale))) * scale;
      } else if (shape_.dtype == DType::kFloat8E5M2) {
        value = static_cast<float>(Float8E5M2(static_cast<float>(value / scale))) * scale;
      } else if (shape_.dtype == DType::kInt8) {
        value = std::nearbyint(value / largest * 127) * largest / 127;
      }
    }
  }

  // Attention over keys and values as they are, or as the cache holds them.
  OwnedTensor<float> expected(Sequence& sequence, bool rounds = false) {
    const int64_t d = shape_.head_dim, group = shape_.num_heads / shape_.num_kv_heads;
    OwnedTensor<float> out({sequence.length, q_width()});
    for (int64_t head = 0; head < shape_.num_heads; ++head) {
      const int64_t key_column = (shape_.num_heads + head / group) * d;
      const int64_t value_column = key_column + shape_.num_kv_heads * d;
      std::vector<std::vector<double>> keys, values;
      for (int64_t p = 0; p < sequence.length; ++p) {
        keys.push_back(rotated(&sequence.qkv.at(p, key_column), true, p));
        const float* value = &sequence.qkv.at(p, value_column);
        values.emplace_back(value, value + d);
        if (rounds) {
          const auto kv_head = static_cast<size_t>(head / group);
          round(keys.back(), key_scales_[kv_head]);
          round(values.back(), value_scales_[kv_head]);
        }
      }
      for (int64_t p = 0; p < sequence.length; ++p) {
        const std::vector<double> q = rotated(&sequence.qkv.at(p, head * d), false, p);
        const int64_t first = shape_.window > 0 ? std::max<int64_t>(0, p - shape_.window + 1) : 0;
        std::vector<double> sum(static_cast<size_t>(d), 0.0);
        double denominator = 0;
        for (int64_t other = first; other <= p; ++other) {
          const auto& key = keys[static_cast<size_t>(other)];
          const double weight =
              std::exp(std::inner_product(q.begin(), q.end(), key.begin(), 0.0) * scale());
          denominator += weight;
          for (int64_t i = 0; i < d; ++i) {
            sum[static_cast<size_t>(i)] +=
                weight * values[static_cast<size_t>(other)][static_cast<size_t>(i)];
          }
        }
        for (int64_t i = 0; i < d; ++i) {
          out.at(p, head * d + i) = static_cast<float>(sum[static_cast<size_t>(i)] / denominator);
        }
      }
    }
    return out;
  }

 private:
  Shape shape_;
  OwnedTensor<float> q_norm_, k_norm_, cos_sin_;
  std::vector<float> key_scales_, value_scales_;
};

// A paged cache whose memory starts as NaN: what was never written must not reach a result.
class Cache {
 public:
  Cache(const Shape& shape, int block_size, int64_t num_blocks) {
    view_.dtype = shape.dtype;
    view_.num_blocks = num_blocks;
    view_.block_size = block_size;
    view_.num_kv_heads = shape.num_kv_heads;
    view_.head_dim = shape.head_dim;
    bytes_ = static_cast<size_t>(num_blocks) * view_.block_bytes();
    keys_ = Buffer(bytes_);
    values_ = Buffer(bytes_);
    std::memset(keys_.data(), 0xff, bytes_);
    std::memset(values_.data(), 0xff, bytes_);
    view_.keys = keys_.data();
    view_.values = values_.data();
  }
  const KvCacheView& view() const { return view_; }

 private:
  KvCacheView view_;
  size_t bytes_ = 0;
  Buffer keys_, values_;
};

// Runs all sequences to their ends in steps of random chunks of random sequences; returns each
// one's output.
std::vector<OwnedTensor<float>> run(Model& model, std::vector<Sequence> sequences, int block_size,
                                    Stream& stream, int64_t max_chunk, std::mt19937& random) {
  int64_t num_blocks = 0;
  for (const Sequence& sequence : sequences) num_blocks += sequence.length / block_size + 1;
  std::vector<int32_t> free(static_cast<size_t>(num_blocks));
  std::iota(free.begin(), free.end(), 0);
  std::shuffle(free.begin(), free.end(), random);
  size_t max_blocks = 0;
  for (Sequence& sequence : sequences) {
    for (int64_t p = 0; p < sequence.length; p += block_size) {
      sequence.blocks.push_back(free.back());
      free.pop_back();
    }
    max_blocks = std::max(max_blocks, sequence.blocks.size());
  }
  Cache cache(model.shape(), block_size, num_blocks);
  std::vector<OwnedTensor<float>> outputs;
  for (Sequence& sequence : sequences) {
    outputs.emplace_back(std::vector<int64_t>{sequence.length, model.q_width()});
  }

  while (true) {
    struct Chunk {
      size_t sequence;
      int64_t first, count;
    };
    std::vector<Chunk> chunks;
    for (size_t s = 0; s < sequences.size(); ++s) {
      const int64_t left = sequences[s].length - sequences[s].cached;
      if (left == 0 || (sequences.size() > 1 && random_int(0, 2, random) == 0)) continue;
      chunks.push_back({s, sequences[s].cached, random_int(1, std::min(left, max_chunk), random)});
    }
    const bool finished = std::all_of(sequences.begin(), sequences.end(),
                                      [](const Sequence& s) { return s.cached == s.length; });
    if (finished) return outputs;
    if (chunks.empty()) continue;
    std::shuffle(chunks.begin(), chunks.end(), random);

    ForwardBatch batch;
    batch.num_seqs = static_cast<int64_t>(chunks.size());
    for (const Chunk& chunk : chunks) batch.num_tokens += chunk.count;
    OwnedTensor<int32_t> positions({batch.num_tokens}), starts({batch.num_seqs + 1}),
        contexts({batch.num_seqs}), tables({batch.num_seqs, static_cast<int64_t>(max_blocks)}, -1);
    OwnedTensor<int64_t> slots({batch.num_tokens});
    OwnedTensor<float> qkv({batch.num_tokens, model.width()}),
        out({batch.num_tokens, model.q_width()}, -7.0f);
    int64_t token = 0;
    for (size_t c = 0; c < chunks.size(); ++c) {
      Sequence& sequence = sequences[chunks[c].sequence];
      for (int64_t i = 0; i < chunks[c].count; ++i, ++token) {
        const int64_t p = chunks[c].first + i;
        positions.values()[static_cast<size_t>(token)] = static_cast<int32_t>(p);
        slots.values()[static_cast<size_t>(token)] =
            int64_t{sequence.blocks[static_cast<size_t>(p / block_size)]} * block_size +
            p % block_size;
        std::copy_n(&sequence.qkv.at(p, 0), model.width(), &qkv.at(token, 0));
      }
      sequence.cached += chunks[c].count;
      starts.values()[c + 1] = static_cast<int32_t>(token);
      contexts.values()[c] = static_cast<int32_t>(sequence.cached);
      std::copy(sequence.blocks.begin(), sequence.blocks.end(),
                &tables.at(static_cast<int64_t>(c), 0));
    }
    batch.positions = positions.tensor();
    batch.slot_mapping = slots.tensor();
    batch.query_start = starts.tensor();
    batch.context_lens = contexts.tensor();
    batch.block_tables = tables.tensor();
    const KvCacheView view = model.with_scales(cache.view());
    qk_norm_rope_cache(stream, qkv.tensor(), model.shape().num_heads, model.params(), batch, view);
    paged_attention(stream, qkv.tensor().columns(0, model.q_width()), model.shape().num_heads,
                    model.scale(), model.shape().window, batch, view, out.tensor());
    token = 0;
    for (const Chunk& chunk : chunks) {
      std::copy_n(&out.at(token, 0), chunk.count * model.q_width(),
                  &outputs[chunk.sequence].at(chunk.first, 0));
      token += chunk.count;
    }
  }
}

Sequence random_sequence(const Model& model, int64_t length, std::mt19937& random) {
  return {random_tensor({length, model.width()}, random), length, {}, 0};
}

std::vector<Shape> shapes() {
  return {
      {4, 2, 64, 64, 0, true, DType::kFloat32},
      {4, 2, 64, 64, 0, true, DType::kBFloat16},
      {16, 2, 128, 128, 0, true, DType::kBFloat16},
      {3, 3, 32, 16, 0, false, DType::kFloat32},
      {8, 1, 80, 20, 0, false, DType::kBFloat16},
      {4, 4, 16, 16, 37, false, DType::kFloat32},
      {6, 2, 64, 64, 100, true, DType::kBFloat16},
      {2, 1, 8, 8, 0, true, DType::kFloat32},
      {4, 2, 10, 6, 5, true, DType::kBFloat16},
      {2, 1, 64, 64, 0, true, DType::kFloat8E4M3},
      {3, 1, 40, 20, 30, false, DType::kFloat8E4M3},
      {4, 1, 128, 128, 0, true, DType::kInt8},
      {3, 3, 40, 16, 37, false, DType::kInt8},
      {2, 1, 72, 64, 100, true, DType::kInt8},
      {2, 1, 64, 64, 0, true, DType::kFloat8E5M2},
      {4, 2, 128, 128, 0, true, DType::kFloat8E5M2},
      {6, 3, 64, 64, 0, true, DType::kFloat8E4M3, true},
      {4, 4, 40, 20, 30, false, DType::kFloat8E4M3, true},
      {4, 2, 72, 72, 0, false, DType::kFloat8E5M2, true},
  };
}

class AttentionTest : public IsaTest {};

// Normally distributed keys and values of at most 128 elements, rounded: bfloat16 loses 2^-9 of a
// number, float8 2^-4 or 2^-3 of it, int8 half of 1/127 of the head's largest.
double tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16:
      return 0.04;
    case DType::kFloat8E4M3:
      return 0.3;
    case DType::kFloat8E5M2:
      return 0.6;
    case DType::kInt8:
      return 0.06;
    default:
      return 5e-6;
  }
}

void expect_near(OwnedTensor<float>& actual, OwnedTensor<float>& expected, double tolerance) {
  for (size_t i = 0; i < actual.values().size(); ++i) {
    ASSERT_NEAR(actual.values()[i], expected.values()[i], tolerance) << "at " << i;
  }
}

TEST_P(AttentionTest, AgreesWithPlainAttention) {
  std::mt19937 random(1);
  ThreadPool pool(2);
  Stream stream(pool, GetParam());
  for (const Shape& shape : shapes()) {
    SCOPED_TRACE(std::string(name_of(shape.dtype)) + ", head_dim " +
                 std::to_string(shape.head_dim));
    Model model(shape, 200, random);
    const int64_t longest = kSanitized ? std::max<int64_t>(70, shape.window + 10) : 150;
    for (int64_t length : {int64_t{1}, int64_t{17}, longest}) {
      Sequence sequence = random_sequence(model, length, random);
      OwnedTensor<float> exact = model.expected(sequence);
      OwnedTensor<float> rounded = model.expected(sequence, true);
      OwnedTensor<float> out = run(model, {sequence}, 16, stream, length, random)[0];
      expect_near(out, exact, tolerance_of(shape.dtype));
      // Now and then a number is so close to the middle of two that float32 rounds it the other
      // way than double.
      expect_near(out, rounded, shape.dtype == DType::kFloat32 ? 5e-6 : 2e-3);
    }
  }
}

// One pass over each sequence by itself, and random chunks beside random others: the same bits.
// Under sanitizers each instruction set has another pair of block size and size of chunks for each
// shape.
TEST_P(AttentionTest, ATokenDoesNotDependOnTheSchedule) {
  std::mt19937 random(2);
  ThreadPool one(1), three(3);
  Stream alone(one, GetParam()), together(three, GetParam());
  constexpr std::array<int, 3> kBlockSizes = {16, 48, 256};
  constexpr std::array<int64_t, 3> kMaxChunks = {1, 7, 90};
  size_t shape_number = 0;
  for (const Shape& shape : shapes()) {
    ++shape_number;
    Model model(shape, 300, random);
    std::vector<Sequence> sequences;
    for (int64_t length : {1, 64, 131, 290, 20}) {
      sequences.push_back(random_sequence(model, length, random));
    }
    std::vector<OwnedTensor<float>> expected;
    for (const Sequence& sequence : sequences) {
      expected.push_back(run(model, {sequence}, 16, alone, sequence.length, random)[0]);
    }
    for (size_t b = 0; b < kBlockSizes.size(); ++b) {
      for (size_t c = 0; c < kMaxChunks.size(); ++c) {
        if (!takes(shape_number + 3 * b + c, 9)) continue;
        const int block_size = kBlockSizes.at(b);
        const int64_t max_chunk = kMaxChunks.at(c);
        const auto outputs = run(model, sequences, block_size, together, max_chunk, random);
        for (size_t s = 0; s < sequences.size(); ++s) {
          ASSERT_TRUE(outputs[s].same_bits(expected[s]))
              << "head_dim " << shape.head_dim << ", block size " << block_size << ", chunks up to "
              << max_chunk << ", sequence " << s;
        }
      }
    }
  }
}

TEST_P(AttentionTest, PaddingIsNotStored) {
  std::mt19937 random(3);
  ThreadPool pool(1);
  Stream stream(pool, GetParam());
  Model model({2, 1, 16, 16, 0, true, DType::kFloat32}, 8, random);
  Cache cache(model.shape(), 16, 1);
  ForwardBatch batch;
  batch.num_tokens = 1;
  OwnedTensor<int32_t> positions({1}, 3);
  OwnedTensor<int64_t> slots({1}, -1);
  batch.positions = positions.tensor();
  batch.slot_mapping = slots.tensor();
  OwnedTensor<float> qkv = random_tensor({1, model.width()}, random);
  qk_norm_rope_cache(stream, qkv.tensor(), 2, model.params(), batch, cache.view());
  const auto* bytes = static_cast<const unsigned char*>(cache.view().keys);
  EXPECT_TRUE(std::all_of(bytes, bytes + cache.view().block_bytes(),
                          [](unsigned char byte) { return byte == 0xff; }));
}

// Contexts of several parts, which one thread computes or several do. Under sanitizers each
// instruction set has half of the shapes.
TEST_P(AttentionTest, LongContextsDoNotDependOnThreadsOrSchedule) {
  std::mt19937 random(4);
  ThreadPool one(1), two(2), five(5);
  Stream alone(one, GetParam()), halved(two, GetParam()), shared(five, GetParam());
  size_t shape_number = 0;
  for (const Shape& shape : std::vector<Shape>{{2, 1, 8, 8, 0, true, DType::kFloat32},
                                               {3, 1, 8, 8, 0, true, DType::kBFloat16},
                                               {2, 2, 8, 8, 700, true, DType::kBFloat16},
                                               {2, 1, 8, 8, 0, true, DType::kFloat8E4M3},
                                               {4, 2, 8, 8, 0, true, DType::kFloat8E4M3, true},
                                               {2, 1, 8, 8, 0, true, DType::kFloat8E5M2},
                                               {2, 1, 8, 8, 0, true, DType::kInt8}}) {
    if (!takes(shape_number++, 2)) continue;
    SCOPED_TRACE(std::string(name_of(shape.dtype)) + ", window " + std::to_string(shape.window));
    Model model(shape, 1200, random);
    std::vector<Sequence> sequences = {random_sequence(model, 1100, random),
                                       random_sequence(model, 40, random)};
    std::vector<OwnedTensor<float>> expected;
    for (const Sequence& sequence : sequences) {
      expected.push_back(run(model, {sequence}, 16, alone, sequence.length, random)[0]);
    }
    OwnedTensor<float> rounded = model.expected(sequences[0], true);
    expect_near(expected[0], rounded, shape.dtype == DType::kFloat32 ? 5e-6 : 2e-3);
    const auto expect_same = [&](Stream& stream, int block_size, int64_t max_chunk) {
      const auto outputs = run(model, sequences, block_size, stream, max_chunk, random);
      for (size_t s = 0; s < sequences.size(); ++s) {
        ASSERT_TRUE(outputs[s].same_bits(expected[s]))
            << "chunks up to " << max_chunk << ", sequence " << s;
      }
    };
    expect_same(shared, 16, 1);
    expect_same(shared, 48, 5);
    expect_same(halved, 256, 300);
  }
}

TEST_P(AttentionTest, ANumberThatIsNoneShows) {
  std::mt19937 random(5);
  ThreadPool pool(1);
  Stream stream(pool, GetParam());
  for (DType dtype : {DType::kFloat8E4M3, DType::kFloat8E5M2, DType::kInt8}) {
    for (bool is_key : {false, true}) {
      Model model({1, 1, 16, 16, 0, false, dtype}, 40, random);
      Sequence sequence = random_sequence(model, 40, random);
      sequence.qkv.at(20, is_key ? 16 : 32) = std::numeric_limits<float>::quiet_NaN();
      const auto out = run(model, {sequence}, 16, stream, 40, random)[0];
      for (int64_t p = 0; p < 40; ++p) {
        EXPECT_EQ(std::isnan(OwnedTensor<float>(out).at(p, 0)), p >= 20) << name_of(dtype);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, AttentionTest, testing::ValuesIn(supported_isas()), isa_test_name);

}  // namespace
}  // namespace quire::ops
