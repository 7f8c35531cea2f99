#include "engine/node_setup.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>

#include "hub/content_hash.h"
#include "hub/model_path.h"
#include "loader/checkpoint.h"
#include "loader/model_config.h"
#include "quire/error.h"
#include "quire/version.h"
#include "runner/rank_layout.h"
#include "speculative/proposer.h"

namespace quire {
namespace {

constexpr size_t kLeastSecret = 16;

void require_of_cluster(bool ok, const std::string& message) {
  if (!ok) throw Error(message);
}

class FactHash {
 public:
  void add(std::string_view bytes) {
    hash_.update(fmt::format("{} ", bytes.size()));
    hash_.update(bytes);
  }
  // Enough of it to tell models apart, and short enough for a sentence.
  std::string finish() { return hash_.finish().substr(0, 16); }

 private:
  ContentHash hash_{ContentId::Kind::kSha256, 0};
};

std::string hash_of_config(const std::filesystem::path& model) {
  const std::filesystem::path path = model / "config.json";
  if (!std::filesystem::exists(path)) return "none";
  std::ifstream file(path, std::ios::binary);
  const std::string content{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  FactHash hash;
  hash.add(content);
  return hash.finish();
}

// The hash of the names, types and shapes of the tensors, and of the first bytes of each, which
// tell models of one shape apart.
std::string hash_of_weights(const std::filesystem::path& model) {
  constexpr size_t kSample = 64;
  const Checkpoint checkpoint = Checkpoint::open(model);
  FactHash hash;
  for (const CheckpointTensor& tensor : checkpoint.tensors()) {
    hash.add(fmt::format("{} {} {} {}", tensor.name, tensor.dtype, fmt::join(tensor.shape, " "),
                         tensor.bytes));
    hash.add({reinterpret_cast<const char*>(tensor.data), std::min(tensor.bytes, kSample)});
  }
  return hash.finish();
}

std::string text_of(const std::optional<int64_t>& value) {
  return value ? std::to_string(*value) : "not given";
}

std::string text_of(const LoraOptions& lora) {
  if (!lora.enabled) return "no adapters";
  return fmt::format("{} adapters of rank {}, {} bytes of each one's copies", lora.max_loras,
                     lora.max_lora_rank, lora.copy_memory_bytes.value_or(0));
}

// What ranks depend on: who makes the drafts, and how many a step may have.
std::string text_of(const std::optional<SpeculativeConfig>& speculation, bool is_dummy) {
  if (!speculation) return "not given";
  std::string text =
      fmt::format("{} of {} tokens", speculation->method, speculation->num_speculative_tokens);
  if (speculation->synthetic_acceptance_length) {
    text += fmt::format(", {} kept", *speculation->synthetic_acceptance_length);
  }
  if (!drafts_with_model(*speculation)) return text;
  const std::filesystem::path folder = resolve_model(speculation->model);
  return text + fmt::format(" by a model of quantization {} with the hashes {} and {}",
                            speculation->quantization, hash_of_config(folder),
                            is_dummy ? "none" : hash_of_weights(folder));
}

std::string text_of(const DeviceChoice& choice) {
  if (!choice.on_gpu()) return "the CPU";
  const int capability = choice.compute_capability;
  if (capability == 0) return "GPUs of several compute capabilities";
  return fmt::format("GPUs of compute capability {}.{}", capability / 10, capability % 10);
}

cluster::Facts facts_of(const EngineConfig& config, const std::filesystem::path& model, Isa isa,
                        const DeviceChoice& choice) {
  const bool is_dummy = config.load_format == LoadFormat::kDummy;
  return {
      {"the version of quire", std::string(version())},
      {"what its ranks run on (--device)", text_of(choice)},
      {"--nnodes", std::to_string(config.cluster.num_nodes)},
      {"--tensor-parallel-size", std::to_string(config.tensor_parallel_size)},
      {"--pipeline-parallel-size", std::to_string(config.pipeline_parallel_size)},
      {"--pipeline-layers", config.pipeline_layers.empty()
                                ? "none"
                                : fmt::format("{}", fmt::join(config.pipeline_layers, ","))},
      {"the model's config.json (its hash)", hash_of_config(model)},
      {"the weights (a hash of their names, types, shapes and first bytes)",
       is_dummy ? fmt::format("dummy weights of --seed {}", config.seed) : hash_of_weights(model)},
      {"the tokens that end an answer",
       fmt::format("{}", fmt::join(load_generation_config(model).eos_token_ids, " "))},
      {"the CPU's kernels (QUIRE_CPU_ISA chooses those of a lesser CPU)",
       choice.on_gpu() ? "not used" : std::string(name_of(isa))},
      {"--dtype", config.dtype},
      {"--quantization", config.quantization},
      {"--kv-cache-dtype", config.kv_cache_dtype == "fp8_e4m3" ? "fp8" : config.kv_cache_dtype},
      {"--block-size", std::to_string(config.block_size)},
      {"--max-num-batched-tokens", std::to_string(config.max_num_batched_tokens)},
      {"--enforce-eager", choice.on_gpu() && config.enforce_eager ? "given" : "not given"},
      {"--max-num-seqs", std::to_string(config.max_num_seqs)},
      {"--max-model-len", text_of(config.max_model_len)},
      {"--num-gpu-blocks-override", text_of(config.num_gpu_blocks_override)},
      {"--kv-cache-memory-bytes", text_of(config.kv_cache_memory_bytes)},
      {"--enable-lora, --max-loras, --max-lora-rank and --lora-copy-memory-bytes",
       text_of(config.lora)},
      {"--speculative-config", text_of(config.speculative_config, is_dummy)},
  };
}

void check_secret(const ClusterOptions& cluster) {
  require_of_cluster(
      !cluster.secret.empty() || cluster::is_loopback(cluster.master_addr),
      fmt::format(
          "--master-addr {} is not this machine's loopback, where other machines could join "
          "the group; give every node the same secret in QUIRE_GROUP_SECRET.",
          cluster.master_addr));
  require_of_cluster(
      cluster.secret.empty() || cluster.secret.size() >= kLeastSecret,
      fmt::format("QUIRE_GROUP_SECRET has {} characters; expected {} or more, for example those of "
                  "'openssl rand -hex 32'.",
                  cluster.secret.size(), kLeastSecret));
}

}  // namespace

void check_cluster(const EngineConfig& config) {
  const ClusterOptions& cluster = config.cluster;
  const int ranks = config.tensor_parallel_size * config.pipeline_parallel_size;
  require_of_cluster(cluster.num_nodes >= 1,
                     fmt::format("--nnodes is {}; expected 1 or more.", cluster.num_nodes));
  require_of_cluster(cluster.node_rank >= 0 && cluster.node_rank < cluster.num_nodes,
                     fmt::format("--node-rank is {} with --nnodes {}; expected 0 to {}.",
                                 cluster.node_rank, cluster.num_nodes, cluster.num_nodes - 1));
  if (cluster.num_nodes == 1) return;
  require_of_cluster(
      ranks % cluster.num_nodes == 0,
      fmt::format("--tensor-parallel-size {} times --pipeline-parallel-size {} is {} rank{}; "
                  "expected a multiple of --nnodes {}, so that each node has as many.",
                  config.tensor_parallel_size, config.pipeline_parallel_size, ranks,
                  ranks == 1 ? "" : "s", cluster.num_nodes));
  require_of_cluster(cluster.master_port >= 0 && cluster.master_port <= 65535,
                     fmt::format("--master-port is {}; expected 0 to 65535.", cluster.master_port));
  require_of_cluster(
      cluster.join_timeout_s > 0 && cluster.join_timeout_s <= 86400,
      fmt::format("--join-timeout is {}; expected more than 0 seconds and at most 86400.",
                  cluster.join_timeout_s));
}

std::shared_ptr<cluster::NodeGroup> join_nodes(const EngineConfig& config,
                                               const std::filesystem::path& model, Isa isa,
                                               const DeviceChoice& choice) {
  const ClusterOptions& given = config.cluster;
  check_secret(given);
  const auto log = [on_message = given.on_message](const std::string& line) {
    if (on_message) on_message(line);
  };
  const cluster::JoinOptions options{
      .num_nodes = given.num_nodes,
      .node = given.node_rank,
      .address = given.master_addr,
      .port = static_cast<uint16_t>(given.master_port),
      .timeout_s = given.join_timeout_s,
      .secret = given.secret,
      .facts = facts_of(config, model, isa, choice),
      .node_of_rank = nodes_of_ranks(config.tensor_parallel_size, config.pipeline_parallel_size,
                                     given.num_nodes),
      .log = log};
  auto nodes = cluster::NodeGroup::join(options, [&](uint16_t port) {
    log(fmt::format("node 0 waits at {}:{} for {} other node{}", given.master_addr, port,
                    given.num_nodes - 1, given.num_nodes == 2 ? "" : "s"));
  });
  if (given.on_leaving) {
    nodes->on_leave(
        [on_leaving = given.on_leaving, weak = std::weak_ptr(nodes)](const std::string& sentence) {
          on_leaving({.sentence = sentence, .end_group = [weak, sentence] {
                        if (const auto group = weak.lock()) group->fail(sentence);
                      }});
        });
  }
  log(fmt::format("node {}: all {} nodes are there", given.node_rank, given.num_nodes));
  return nodes;
}

}  // namespace quire
