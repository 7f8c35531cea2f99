// EAGLE and EAGLE-3 heads, and what their targets hand out for them, against transformers and the
// speculators package (scripts/make_eagle_goldens.py).
#include "models/eagle_head.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/mapped_file.h"
#include "dist/communicator.h"
#include "loader/safetensors.h"
#include "loader/weight_loader.h"
#include "models/families.h"
#include "quire/error.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

fs::path golden_folder() {
  return fs::path(QUIRE_SOURCE_DIR) / "tests/golden";
}

// Rows of a golden tensor, one after the other.
struct GoldenRows {
  int64_t rows = 0;
  int64_t width = 0;
  std::vector<float> values;
};

struct EagleCase {
  fs::path folder;
  fs::path target;
  ModelOptions target_options;
  ModelOptions options;
  std::vector<int32_t> token_ids;
  int64_t chain_row = 0;
  GoldenRows states, logits, chain;
};

GoldenRows read_rows(const std::vector<CheckpointTensor>& tensors, std::string_view name) {
  const auto tensor = std::ranges::find(tensors, name, &CheckpointTensor::name);
  if (tensor == tensors.end()) throw Error("golden.safetensors lacks " + std::string(name));
  GoldenRows rows{tensor->shape.at(0), tensor->shape.at(1), {}};
  rows.values.resize(static_cast<size_t>(rows.rows * rows.width));
  std::memcpy(rows.values.data(), tensor->data, rows.values.size() * sizeof(float));
  return rows;
}

EagleCase load_eagle_case(const std::string& name) {
  EagleCase golden;
  golden.folder = golden_folder() / "eagle" / name;
  const auto json = nlohmann::json::parse(std::ifstream(golden.folder / "golden.json"));
  golden.target = golden_folder() / "models" / json.at("target").get<std::string>();
  golden.target_options.config = load_model_config(golden.target);
  golden.target_options.max_model_len = 64;
  golden.options = golden.target_options;
  const EagleKind kind = json.at("method") == "eagle" ? EagleKind::kEagle : EagleKind::kEagle3;
  golden.options.eagle = load_eagle_config(golden.folder, kind, golden.target_options.config);
  golden.options.config = golden.options.eagle->layers;
  golden.token_ids = json.at("token_ids").get<std::vector<int32_t>>();
  golden.chain_row = json.at("chain_row");
  const MappedFile file = MappedFile::open(golden.folder / "golden.safetensors");
  const auto tensors = parse_safetensors(file.bytes(), "golden.safetensors");
  golden.states = read_rows(tensors, "states");
  golden.logits = read_rows(tensors, "logits");
  golden.chain = read_rows(tensors, "chain");
  return golden;
}

void expect_near(std::span<const float> got, std::span<const float> expected) {
  ASSERT_EQ(got.size(), expected.size());
  double largest = 0;
  double difference = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_FALSE(std::isnan(got[i]));
    largest = std::max(largest, std::abs(static_cast<double>(expected[i])));
    difference = std::max(difference, std::abs(static_cast<double>(got[i]) - expected[i]));
  }
  EXPECT_LE(difference, 2e-5 * largest) << "relative " << difference / largest;
}

// A model or a head with a cache of one sequence, on one rank.
class OneSequence {
 public:
  static constexpr int kBlockSize = 16;
  static constexpr int64_t kNumBlocks = 4;

  OneSequence(ModelOptions options, const fs::path& folder, Communicator& comm)
      : comm_(comm), pool_(1), stream_(pool_), arena_(Buffer(16 << 20)) {
    options.rank = comm.rank();
    options.size = comm.size();
    model_ = create_model(options);
    const Checkpoint checkpoint = Checkpoint::open(folder);
    load_weights(checkpoint, model_->parameters(), pool_, {});
    const KvCacheShape shape = model_->kv_cache_shape();
    for (int64_t layer = 0; layer < shape.num_layers; ++layer) {
      KvCacheView view{.num_blocks = kNumBlocks,
                       .block_size = kBlockSize,
                       .num_kv_heads = shape.num_kv_heads,
                       .head_dim = shape.head_dim};
      view.keys = memory_.emplace_back(kNumBlocks * view.block_bytes()).data();
      view.values = memory_.emplace_back(kNumBlocks * view.block_bytes()).data();
      caches_.push_back(view);
    }
    model_->bind_cache(stream_, comm_, caches_);
    for (int32_t block = 0; block < kNumBlocks; ++block) blocks_.push_back(kNumBlocks - 1 - block);
  }

  Model& model() { return *model_; }

  // Calls `work` with a context of tokens at `first` and behind it.
  template <typename Work>
  void step(std::vector<int32_t> tokens, int64_t first, const Work& work) {
    const auto n = std::ssize(tokens);
    std::vector<int32_t> positions, rows;
    std::vector<int64_t> slots;
    for (int32_t i = 0; i < n; ++i) {
      const auto position = static_cast<int32_t>(first) + i;
      positions.push_back(position);
      rows.push_back(i);
      slots.push_back(int64_t{blocks_[static_cast<size_t>(position / kBlockSize)]} * kBlockSize +
                      position % kBlockSize);
    }
    std::vector<int32_t> query_start{0, static_cast<int32_t>(n)};
    auto context_len = static_cast<int32_t>(first + n);
    ForwardBatch batch;
    batch.num_tokens = n;
    batch.num_seqs = 1;
    batch.max_query_len = n;
    batch.max_context_len = context_len;
    batch.token_ids = Tensor(tokens.data(), DType::kInt32, {n});
    batch.positions = Tensor(positions.data(), DType::kInt32, {n});
    batch.slot_mapping = Tensor(slots.data(), DType::kInt64, {n});
    batch.query_start = Tensor(query_start.data(), DType::kInt32, {2});
    batch.context_lens = Tensor(&context_len, DType::kInt32, {1});
    batch.block_tables = Tensor(blocks_.data(), DType::kInt32, {1, kNumBlocks});
    batch.logits_rows = Tensor(rows.data(), DType::kInt32, {n});
    const Arena::Scope scope(arena_);
    ForwardContext context{stream_, DType::kFloat32, arena_, comm_, batch};
    work(context);
  }

 private:
  Communicator& comm_;
  ThreadPool pool_;
  Stream stream_;
  Arena arena_;
  std::unique_ptr<Model> model_;
  std::vector<Buffer> memory_;
  std::vector<KvCacheView> caches_;
  std::vector<int32_t> blocks_;
};

std::vector<float> values_of(const Tensor& tensor) {
  std::vector<float> values;
  for (int64_t row = 0; row < tensor.dim(0); ++row) {
    values.insert(values.end(), tensor.row<float>(row), tensor.row<float>(row) + tensor.dim(1));
  }
  return values;
}

// A head on one rank, driven as the runner drives it.
class TestHead {
 public:
  TestHead(const EagleCase& golden, Communicator& comm)
      : golden_(golden),
        target_(golden.target_options, golden.target, comm),
        sequence_(golden.options, golden.folder, comm) {
    std::iota(row_ids_.begin(), row_ids_.end(), 0);
    head().share(target_.model().vocab_tables(),
                 Tensor(row_ids_.data(), DType::kInt32, {std::ssize(row_ids_)}));
  }

  // Logits of rows [first, end), from the golden states.
  std::vector<float> read(int64_t first, int64_t end) {
    GoldenRows states = golden_.states;
    const Tensor all(states.values.data(), DType::kFloat32, {states.rows, states.width});
    return run(first, end, [&](ForwardContext& context, const Tensor& known) {
      const Tensor states_of_rows = all.rows(first, end);
      if (head().projects()) return head().project(context, states_of_rows, known);
      std::ranges::copy(values_of(states_of_rows), known.data<float>());
    });
  }

  // The same of the row behind the last one, from the head's own output.
  std::vector<float> draft(int64_t row) {
    const std::vector<float> last = last_;
    return run(row, row + 1, [&](ForwardContext&, const Tensor& known) {
      std::ranges::copy(last, known.row<float>(0));
    });
  }

 private:
  EagleHead& head() { return dynamic_cast<EagleHead&>(sequence_.model()); }

  template <typename Known>
  std::vector<float> run(int64_t first, int64_t end, const Known& write_known) {
    std::vector<float> logits;
    const auto begin = golden_.token_ids.begin() + 1;
    sequence_.step({begin + first, begin + end}, first, [&](ForwardContext& context) {
      const auto shape = {end - first, golden_.options.config.hidden_size};
      const IntermediateTensors rows = {context.arena.allocate(DType::kFloat32, shape),
                                        context.arena.allocate(DType::kFloat32, shape)};
      write_known(context, rows.residual);
      const IntermediateTensors state = head().forward(context, rows);
      logits = values_of(head().compute_logits(context, state.hidden));
      last_ = values_of(state.residual.rows(end - first - 1, end - first));
    });
    return logits;
  }

  const EagleCase& golden_;
  OneSequence target_;
  OneSequence sequence_;
  std::vector<int32_t> row_ids_ = std::vector<int32_t>(64);
  std::vector<float> last_;  // what is known of the next row
};

// Calls `work` on each of `size` ranks.
template <typename Work>
void on_ranks(int size, const Work& work) {
  auto comms = make_local_communicators(size);
  std::vector<std::thread> threads;
  for (auto& comm : comms) threads.emplace_back([&] { work(*comm); });
  for (std::thread& thread : threads) thread.join();
}

class EagleGolden : public ::testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Heads, EagleGolden,
                         ::testing::Values("eagle", "midlayer", "speculators", "shared"));

TEST_P(EagleGolden, LogitsOfRowsAndOfDraftsBehindThem) {
  const EagleCase golden = load_eagle_case(GetParam());
  for (const int size : {1, 2}) {
    on_ranks(size, [&](Communicator& comm) {
      TestHead head(golden, comm);
      std::vector<float> logits = head.read(0, 7);
      for (const float value : head.read(7, golden.states.rows)) logits.push_back(value);
      expect_near(logits, golden.logits.values);

      head.read(0, golden.chain_row);
      std::vector<float> chain = head.read(golden.chain_row, golden.chain_row + 1);
      for (int64_t row = 1; row < golden.chain.rows; ++row) {
        for (const float value : head.draft(golden.chain_row + row)) chain.push_back(value);
      }
      expect_near(chain, golden.chain.values);
    });
  }
}

TEST_P(EagleGolden, TheTargetHandsOutTheInputsOfItsLayers) {
  const EagleCase golden = load_eagle_case(GetParam());
  for (const int size : {1, 2}) {
    on_ranks(size, [&](Communicator& comm) {
      OneSequence target(golden.target_options, golden.target, comm);
      std::vector<float> states(golden.states.values.size());
      const Tensor out(states.data(), DType::kFloat32, {golden.states.rows, golden.states.width});
      for (const auto& rows : {std::pair<int64_t, int64_t>{0, 9}, {9, out.dim(0)}}) {
        const int64_t first = rows.first;
        const int64_t end = rows.second;
        const auto begin = golden.token_ids.begin();
        target.step({begin + first, begin + end}, first, [&](ForwardContext& context) {
          const AuxStates aux = {.layers = golden.options.eagle->aux_layers,
                                 .rows = context.batch.logits_rows,
                                 .out = out.rows(first, end)};
          context.aux = &aux;
          target.model().forward(context, std::nullopt);
        });
      }
      expect_near(states, golden.states.values);
    });
  }
}

}  // namespace
}  // namespace quire
