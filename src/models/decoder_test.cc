// The decoder on tiny random models: ranks, stages and chunks agree, and memory is what was
// counted.
#include "models/decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "loader/weight_loader.h"
#include "models/run_for_test.h"
#include "quire/error.h"

namespace quire {
namespace {

using ::testing::HasSubstr;

// Odd sizes where they are allowed: a vocabulary that no number of ranks divides, heads unlike
// hidden_size.
ModelOptions tiny_model() {
  ModelOptions options;
  options.config = {.architecture = "Qwen3ForCausalLM",
                    .model_type = "qwen3",
                    .vocab_size = 101,
                    .hidden_size = 40,
                    .intermediate_size = 72,
                    .num_hidden_layers = 3,
                    .num_attention_heads = 8,
                    .num_key_value_heads = 2,
                    .head_dim = 16,
                    .max_position_embeddings = 128,
                    .attention_bias = true,
                    .layer_sliding_window = {0, 9, 0},
                    .rope = {}};
  options.max_model_len = 128;
  return options;
}

FillParameters dummy(uint64_t seed = 1) {
  return [seed](const ParameterMap& parameters, ThreadPool& pool) {
    fill_dummy_weights(parameters, seed, pool, {});
  };
}

std::vector<int32_t> some_tokens(int n) {
  std::vector<int32_t> tokens;
  tokens.reserve(static_cast<size_t>(n));
  for (int i = 0; i < n; ++i) tokens.push_back((i * 37 + i * i * 11 + 5) % 101);
  return tokens;
}

double relative_difference(const std::vector<std::vector<float>>& a,
                           const std::vector<std::vector<float>>& b) {
  double largest = 0.0;
  double difference = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t j = 0; j < a[i].size(); ++j) {
      largest = std::max(largest, std::abs(static_cast<double>(b[i][j])));
      difference = std::max(difference, std::abs(static_cast<double>(a[i][j]) - b[i][j]));
    }
  }
  return difference / largest;
}

// Both fields: a tied output layer, and one of its own.
class TinyDecoder : public ::testing::TestWithParam<bool> {
 protected:
  ModelOptions options() const {
    ModelOptions options = tiny_model();
    options.config.tie_word_embeddings = GetParam();
    return options;
  }
};
INSTANTIATE_TEST_SUITE_P(Tied, TinyDecoder, ::testing::Bool());

TEST_P(TinyDecoder, RanksComputeWhatOneComputes) {
  const auto tokens = some_tokens(45);
  const auto one = run_prompt(options(), {}, dummy(), tokens);
  EXPECT_GT(*std::max_element(one[0].logits[44].begin(), one[0].logits[44].end()), 1e-4f);
  for (const int size : {2, 4, 8}) {  // at 4 and 8 ranks share KV heads
    const auto ranks = run_prompt(options(), {.size = size}, dummy(), tokens);
    EXPECT_LE(relative_difference(ranks[0].logits, one[0].logits), 1e-5) << size << " ranks";
    for (const auto& rank : ranks) EXPECT_EQ(rank.logits, ranks[0].logits);
    EXPECT_EQ(run_prompt(options(), {.size = size}, dummy(), tokens)[0].logits, ranks[0].logits);
  }
}

TEST_P(TinyDecoder, StagesComputeExactlyWhatOneComputes) {
  const auto tokens = some_tokens(33);
  const auto one = run_prompt(options(), {}, dummy(), tokens);
  EXPECT_EQ(run_prompt(options(), {.stage_ends = {1, 3}}, dummy(), tokens)[0].logits,
            one[0].logits);
  EXPECT_EQ(run_prompt(options(), {.stage_ends = {1, 2, 3}}, dummy(), tokens)[0].logits,
            one[0].logits);
  const auto two = run_prompt(options(), {.size = 2}, dummy(), tokens);
  EXPECT_EQ(run_prompt(options(), {.size = 2, .stage_ends = {2, 3}}, dummy(), tokens)[1].logits,
            two[1].logits);
}

TEST_P(TinyDecoder, ChunksAndThreadsDontChangeABit) {
  const auto tokens = some_tokens(50);
  const auto whole = run_prompt(options(), {}, dummy(), tokens);
  const TestRunOptions chunked{.chunks = {7, 1, 1, 30, 11}, .threads = 3};
  EXPECT_EQ(run_prompt(options(), chunked, dummy(), tokens)[0].logits, whole[0].logits);
}

TEST_P(TinyDecoder, TakesExactlyThePlannedArena) {
  for (const int size : {1, 2, 4}) {
    for (const int num_tokens : {1, 5, 64}) {
      const auto ranks = run_prompt(options(), {.size = size}, dummy(), some_tokens(num_tokens));
      for (const auto& rank : ranks) {
        EXPECT_EQ(rank.arena_peak, rank.arena_planned)
            << num_tokens << " tokens, " << size << " ranks";
      }
    }
  }
}

TEST(Decoder, LongPrefillTakesExactlyThePlannedArena) {
  // More tokens than go through the MLP together.
  ModelOptions options = tiny_model();
  options.config.num_hidden_layers = 1;
  options.config.intermediate_size = 400;
  options.config.max_position_embeddings = options.max_model_len = 2100;
  options.config.layer_sliding_window = {4};
  auto comm = make_single_communicator();
  TestRank rank(options, {}, dummy(), *comm, 2100);
  rank.step(some_tokens(2100), 0);
  EXPECT_EQ(rank.arena_peak(), rank.arena_planned());
  // Hidden state and residual, and the MLP's gate, up and inner features for 2048 tokens at once.
  EXPECT_EQ(rank.arena_planned(), (2 * 2100 * 40 + 2048 * 3 * 400) * sizeof(float));
}

size_t bytes_of_item(const std::vector<MemoryItem>& items, std::string_view name) {
  for (const MemoryItem& item : items) {
    if (item.name == name) return item.bytes;
  }
  ADD_FAILURE() << name;
  return 0;
}

TEST(Decoder, IsCountedForAGpuThatIsNotThere) {
  ModelOptions options = tiny_model();
  options.dtype = DType::kBFloat16;
  options.device.type = DeviceType::kCuda;
  CountedModel model(options);
  // Row major, without padding.
  EXPECT_EQ(bytes_of_item(model.model().memory(), "embedding"), 101u * 40u * 2u);
  // Hidden state and residual; queries, keys and values of 8, 2 and 2 heads, and what attention
  // makes of them. Logits of few rows take less.
  EXPECT_EQ(model.activation_bytes(64, 1), (2 * 64 * 40 + 64 * (12 + 8) * 16) * sizeof(BFloat16));
}

TEST_P(TinyDecoder, SaysWhereItsMemoryGoes) {
  for (const int size : {1, 2, 4}) {
    for (int rank = 0; rank < size; ++rank) {
      ModelOptions of_rank = options();
      of_rank.size = size;
      of_rank.rank = rank;
      CountedModel model(of_rank);
      size_t sum = 0;
      for (const MemoryItem& item : model.model().memory()) sum += item.bytes;
      EXPECT_EQ(sum, model.weight_bytes()) << "rank " << rank << " of " << size;
    }
  }
  CountedModel model(options());
  const auto items = model.model().memory();
  // 2 norms a layer and the final one; q and k norms are the attention's.
  EXPECT_EQ(bytes_of_item(items, "norm weights"), (2 * 3 + 1) * 40 * sizeof(float));
  EXPECT_EQ(bytes_of_item(items, "rotary table"), 128 * 16 * sizeof(float));
  // 101 rows are padded to two panels of 64.
  EXPECT_EQ(bytes_of_item(items, "embedding"), 2 * 64 * 40 * sizeof(float));
  EXPECT_EQ(bytes_of_item(items, "output layer"),
            GetParam() ? 0 : bytes_of_item(items, "embedding"));
  ModelOptions half = options();
  half.dtype = DType::kBFloat16;
  EXPECT_LT(CountedModel(half).weight_bytes(), model.weight_bytes());
}

TEST_P(TinyDecoder, TakesWhatIsCounted) {
  const auto real = create_model(options());
  const auto items = real->memory();
  CountedModel counted(options());
  const auto counted_items = counted.model().memory();
  ASSERT_EQ(items.size(), counted_items.size());
  for (size_t i = 0; i < items.size(); ++i) EXPECT_EQ(items[i].bytes, counted_items[i].bytes);
}

TEST_P(TinyDecoder, NamesItsProducts) {
  CountedModel model(options());
  std::vector<std::string> names;
  for (const MatrixProduct& product : model.model().products()) names.push_back(product.name);
  const std::vector<std::string> layer = {"qkv_proj", "o_proj", "gate_up_proj", "down_proj"};
  std::vector<std::string> expected;
  for (int i = 0; i < 3; ++i) expected.insert(expected.end(), layer.begin(), layer.end());
  expected.emplace_back("lm_head");
  EXPECT_EQ(names, expected);
}

TEST_P(TinyDecoder, TakesCheckpointTensorsByName) {
  auto model = create_model(options());
  const ParameterMap parameters = model->parameters();
  const auto targets = parameters.find("model.layers.2.self_attn.v_proj.bias");
  ASSERT_EQ(targets.size(), 1u);
  EXPECT_EQ(targets[0].part, 2u);
  const auto has = [&](std::string_view name) { return !parameters.find(name).empty(); };
  EXPECT_TRUE(has("model.layers.0.mlp.up_proj.weight"));
  EXPECT_FALSE(has("model.layers.3.mlp.up_proj.weight"));
  EXPECT_FALSE(parameters.ignored("model.layers.3.mlp.up_proj.weight"));
  EXPECT_FALSE(has("model.layers.0.self_attn.qkv_proj.weight"));
  EXPECT_TRUE(parameters.ignored("model.layers.0.self_attn.rotary_emb.inv_freq"));
  EXPECT_EQ(parameters.ignored("lm_head.weight"), GetParam());
  EXPECT_EQ(has("lm_head.weight"), !GetParam());
  // 3 layers of 7 weights, 4 biases and 4 norms, the embedding, the final norm and the output
  // layer.
  EXPECT_EQ(parameters.targets().size(), 3u * 15u + 2u + (GetParam() ? 0u : 1u));
}

TEST_P(TinyDecoder, TakesFusedTensorsWhereTheFamilyHasThem) {
  ModelOptions fused = options();
  fused.config.architecture = "Phi3ForCausalLM";
  auto model = create_model(fused);
  const ParameterMap parameters = model->parameters();
  EXPECT_TRUE(parameters.find("model.layers.0.self_attn.q_proj.weight").empty());
  // Queries, keys and values, one below the other: 8, 2 and 2 heads of 16.
  const auto targets = parameters.find("model.layers.0.self_attn.qkv_proj.weight");
  ASSERT_EQ(targets.size(), 3u);
  for (size_t part = 0; part < 3; ++part) {
    EXPECT_EQ(targets[part].part, part);
    EXPECT_EQ(targets[part].shape, (std::vector<int64_t>{12 * 16, 40}));
    EXPECT_EQ(targets[part].first_row, (std::vector<int64_t>{0, 8 * 16, 10 * 16}[part]));
  }
}

TEST_P(TinyDecoder, AStagePassesOverTheOthersTensors) {
  ModelOptions last = options();
  last.first_layer = 1;
  auto model = create_model(last);
  const ParameterMap parameters = model->parameters();
  EXPECT_TRUE(parameters.ignored("model.layers.0.mlp.up_proj.weight"));
  EXPECT_FALSE(parameters.find("model.norm.weight").empty());
  // A tied output layer in another stage than the embedding has its own copy of the table.
  EXPECT_EQ(parameters.find("model.embed_tokens.weight").empty(), !GetParam());
  EXPECT_EQ(parameters.ignored("model.embed_tokens.weight"), !GetParam());
  EXPECT_EQ(model->kv_cache_shape().num_layers, 2);
}

TEST(Decoder, SharesKvHeadsWhereThereAreFewerThanRanks) {
  ModelOptions options = tiny_model();
  for (const auto& [size, num_kv_heads] : {std::pair{1, 2}, {2, 1}, {8, 1}}) {
    options.size = size;
    EXPECT_EQ(create_model(options)->kv_cache_shape().num_kv_heads, num_kv_heads) << size;
  }
}

std::string message_of(const ModelOptions& options) {
  try {
    create_model(options);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Decoder, RefusesWhatItCannotRun) {
  ModelOptions options = tiny_model();
  options.config.architecture = "GPT2LMHeadModel";
  EXPECT_THAT(message_of(options), HasSubstr("architectures is [\"GPT2LMHeadModel\"]"));
  EXPECT_THAT(message_of(options),
              HasSubstr("LlamaForCausalLM, MistralForCausalLM, Phi3ForCausalLM, Qwen2ForCausalLM"));

  options = tiny_model();
  options.config.hidden_act = "gelu";
  EXPECT_THAT(message_of(options), HasSubstr("hidden_act is \"gelu\""));

  options = tiny_model();
  options.size = 3;
  EXPECT_THAT(message_of(options), HasSubstr("tensor_parallel_size is 3"));
  EXPECT_THAT(message_of(options), HasSubstr("num_attention_heads is 8"));

  options = tiny_model();
  options.config.num_key_value_heads = 8;
  options.config.num_attention_heads = 48;
  options.size = 12;
  EXPECT_THAT(message_of(options), HasSubstr("num_key_value_heads is 8"));

  options = tiny_model();
  options.config.rope.partial_rotary_factor = 0.2;
  EXPECT_THAT(message_of(options), HasSubstr("partial_rotary_factor"));
}

}  // namespace
}  // namespace quire
