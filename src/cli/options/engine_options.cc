#include "cli/options/engine_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

#include "cli/options/option_helpers.h"
#include "cli/options/speculative_option.h"
#include "cli/usage_error.h"
#include "grammar/tokens/language.h"
#include "hub/model_path.h"
#include "quire/engine_limits.h"
#include "quire/error.h"

namespace quire::cli {
namespace {

constexpr const char* kEngineGroup = "Engine";
constexpr const char* kGroupSecretVariable = "QUIRE_GROUP_SECRET";
constexpr int64_t kMaxNodes = 1024;

// Each of k, m, g, t is a thousand times the one before, each of K, M, G, T 1,024 times.
int64_t unit_of(char suffix) {
  const std::string_view decimal = "kmgt";
  const std::string_view binary = "KMGT";
  const size_t in_decimal = decimal.find(suffix);
  const size_t power = in_decimal != std::string_view::npos ? in_decimal : binary.find(suffix);
  if (power == std::string_view::npos) return 0;
  int64_t unit = 1;
  for (size_t i = 0; i <= power; ++i) unit *= in_decimal != std::string_view::npos ? 1000 : 1024;
  return unit;
}

// Nothing for a count that 64 bits do not hold.
std::optional<int64_t> count_of(const std::string& text, const std::string& option) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  const int64_t unit = rest + 1 == end ? unit_of(*rest) : 1;
  if (error == std::errc::invalid_argument || (rest != end && (rest + 1 != end || unit == 0))) {
    throw UsageError(fmt::format(
        "{}: expected an integer, or one with a unit like 4k (4,000) or 4K (4,096), got '{}'",
        option, text));
  }
  int64_t product = 0;
  if (error != std::errc() || __builtin_mul_overflow(value, unit, &product)) return std::nullopt;
  return product;
}

struct Range {
  int64_t least = 1;
  int64_t most = std::numeric_limits<int64_t>::max();
};

void add_count(CLI::App& app, const std::string& option, Range range,
               const std::function<void(int64_t)>& store, const std::string& help) {
  add_value(
      app, {option, "N", help, kEngineGroup}, [option, range, store](const std::string& text) {
        const std::optional<int64_t> value = count_of(text, option);
        if (!value || *value < range.least || *value > range.most) {
          throw UsageError(
              fmt::format("{}: expected {} to {}, got {}", option, range.least, range.most, text));
        }
        store(*value);
      });
}

// "9,9,10,8".
std::vector<int64_t> parse_layers(const std::string& text) {
  std::vector<int64_t> layers;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    int64_t count = 0;
    const auto [rest, error] = std::from_chars(text.data() + begin, text.data() + end, count);
    if (error != std::errc() || rest != text.data() + end || count < 1) {
      throw UsageError(fmt::format(
          "--pipeline-layers: expected the layers of each stage, like 9,9,10,8, got '{}'", text));
    }
    layers.push_back(count);
    begin = end + 1;
  }
  return layers;
}

void add_memory_options(CLI::App& app, EngineConfig& config) {
  add_count(
      app, "--block-size", {.least = 16, .most = 256},
      [&config](int64_t value) {
        if (value % 16 != 0) {
          throw UsageError(
              fmt::format("--block-size: expected a multiple of 16 up to 256, got {}", value));
        }
        config.block_size = static_cast<int>(value);
      },
      fmt::format("Tokens in a KV block, a multiple of 16 up to 256 [{}]", config.block_size));
  add_count(
      app, "--num-gpu-blocks-override", {.most = kMaxNumBlocks},
      [&config](int64_t value) { config.num_gpu_blocks_override = value; },
      "KV blocks, instead of as many as memory allows");
  add_count(
      app, "--kv-cache-memory-bytes", {},
      [&config](int64_t value) { config.kv_cache_memory_bytes = value; },
      "Memory for the KV cache, over all ranks, e.g. 4G [CPU: half of what is free, at most what "
      "all sequences fill; GPU: what its "
      "share leaves]");
  add_number(app,
             {"--gpu-memory-utilization", "SHARE",
              fmt::format("Share to take of what is free on each GPU at the start [{}]",
                          config.gpu_memory_utilization),
              kEngineGroup},
             config.gpu_memory_utilization, [](const std::string& text) -> std::string {
               const double value = std::strtod(text.c_str(), nullptr);
               if (value > 0 && value <= 1) return "";
               return "expected a number above 0 and up to 1, got " + text;
             });
}

void add_batching_options(CLI::App& app, EngineConfig& config) {
  add_count(
      app, "--max-num-batched-tokens", {.most = kMaxNumBatchedTokens},
      [&config](int64_t value) { config.max_num_batched_tokens = value; },
      fmt::format("Tokens in one step [{}]", config.max_num_batched_tokens));
  add_count(
      app, "--max-num-seqs", {.most = kMaxNumSeqs},
      [&config](int64_t value) { config.max_num_seqs = value; },
      fmt::format("Sequences in one step [{}]", config.max_num_seqs));
  add_count(
      app, "--max-model-len", {.least = 2, .most = kMaxModelLen},
      [&config](int64_t value) { config.max_model_len = value; },
      "Tokens of a prompt and its output together, e.g. 8K [the model's]");
  add_switch(
      app, "enable-prefix-caching", true,
      [&config](bool value) { config.enable_prefix_caching = value; },
      "Do not reuse the KV cache of prompts that begin alike [off]", kEngineGroup);
  add_switch(
      app, "async-scheduling", true, [&config](bool value) { config.async_scheduling = value; },
      "Schedule a step only when the one before has ended; the tokens are the same [off]",
      kEngineGroup);
  add_value(app,
            {"--speculative-config", "JSON",
             "Guess tokens and verify several in a step, e.g. '{\"method\": \"ngram\"}', or "
             "'{\"method\": \"draft_model\", \"model\": \"org/name\"}' with a smaller model, or "
             "\"eagle\" or \"eagle3\" with a head that was trained for the model; the tokens are "
             "the same, unless synthetic_acceptance_length asks for a measurement "
             "[off]",
             kEngineGroup},
            [&config](const std::string& text) {
              config.speculative_config = parse_speculative_config(text);
            });
}

void add_device_options(CLI::App& app, EngineConfig& config) {
  add_choice(
      app, "--dtype", {"auto", "float32", "bfloat16", "float16"},
      [&config](const std::string& text) { config.dtype = text; },
      "Type of weights and KV cache; float16 only on a GPU [auto: the config's; the CPU holds "
      "float16 as float32, and takes bfloat16 where weights are integers]",
      kEngineGroup);
  add_choice(
      app, "--quantization", {"none", "fp8", "int8", "int4"},
      [&config](const std::string& text) { config.quantization = text; },
      "Round dense linear layers as they load: to fp8, with a scale for each output (on GPUs of "
      "compute capability 9.0, with activations rounded too, and on the CPU), or on the CPU to "
      "integers in groups of 32 inputs, with embedding and output layer of int8 [none]",
      kEngineGroup);
  add_choice(
      app, "--kv-cache-dtype", {"auto", "fp8", "fp8_e4m3", "fp8_e5m2", "int8"},
      [&config](const std::string& text) { config.kv_cache_dtype = text; },
      "Type of the KV cache: fp8 (fp8_e4m3, with a checkpoint's k_scale and v_scale; on a GPU not "
      "with float32) halves that of bfloat16, and so do fp8_e5m2 and int8, which is closer and "
      "only on the CPU [auto: that of the weights]",
      kEngineGroup);
  add_choice(
      app, "--device", {"auto", "cpu", "cuda"},
      [&config](const std::string& text) { config.device = text; },
      "Where to run [auto: on a GPU where one works, else on the CPU]", kEngineGroup);
  add_count(
      app, "--tensor-parallel-size", {.most = kMaxTensorParallelSize},
      [&config](int64_t value) { config.tensor_parallel_size = static_cast<int>(value); },
      fmt::format(
          "Ranks to split each layer over, each on a GPU of its own or on threads of the CPU [{}]",
          config.tensor_parallel_size));
  add_count(
      app, "--pipeline-parallel-size", {.most = kMaxPipelineParallelSize},
      [&config](int64_t value) { config.pipeline_parallel_size = static_cast<int>(value); },
      fmt::format("Stages to cut the layers into, each with ranks of its own and at work on "
                  "another step [{}]",
                  config.pipeline_parallel_size));
  add_value(app,
            {"--pipeline-layers", "N,N,...",
             "Layers of each stage, e.g. 9,9,10,8 [as many as make stages take equal time]",
             kEngineGroup},
            [&config](const std::string& text) { config.pipeline_layers = parse_layers(text); });
  add_count(
      app, "--threads", {.least = 0, .most = kMaxThreads},
      [&config](int64_t value) { config.threads = static_cast<int>(value); },
      "CPU threads of this process, over all its ranks [the physical cores]");
  add_flag(app,
           {"--enforce-eager", "",
            "Use no CUDA graphs, which is slower; no effect on the CPU [off]", kEngineGroup},
           config.enforce_eager);
  add_text(app,
           {"--linear-algorithms", "FILE",
            "Algorithms of matrix products on this kind of GPU, as 'quire tune --output' writes "
            "them, before quire's own table; only on a GPU [the table]",
            kEngineGroup},
           config.linear_algorithms, [](const std::string& text) -> std::string {
             return text.empty() ? "expected a file, got an empty text" : "";
           });
}

void add_node_options(CLI::App& app, ClusterOptions& cluster) {
  add_count(
      app, "--nnodes", {.most = kMaxNodes},
      [&cluster](int64_t value) { cluster.num_nodes = static_cast<int>(value); },
      fmt::format("Processes, on one host or several, that the ranks are spread over; each runs "
                  "the same command but for --node-rank [{}]",
                  cluster.num_nodes));
  add_count(
      app, "--node-rank", {.least = 0, .most = kMaxNodes - 1},
      [&cluster](int64_t value) { cluster.node_rank = static_cast<int>(value); },
      fmt::format("Which of them this is; 0 has the engine and serves [{}]", cluster.node_rank));
  add_text(
      app,
      {"--master-addr", "ADDRESS",
       fmt::format("Where node 0 listens for the others, an address of its own. Elsewhere than "
                   "on loopback each node needs the same secret in {} [{}]",
                   kGroupSecretVariable, cluster.master_addr),
       kEngineGroup},
      cluster.master_addr, [](const std::string& text) -> std::string {
        return text.empty() ? "expected an address or a name, got an empty text" : "";
      });
  add_count(
      app, "--master-port", {.least = 0, .most = std::numeric_limits<uint16_t>::max()},
      [&cluster](int64_t value) { cluster.master_port = static_cast<int>(value); },
      fmt::format("Port there; 0: any that is free, which node 0 tells [{}]", cluster.master_port));
  add_number(app,
             {"--join-timeout", "SECONDS",
              fmt::format("How long nodes wait until all are there [{}]", cluster.join_timeout_s),
              kEngineGroup},
             cluster.join_timeout_s, [](const std::string& text) -> std::string {
               const double value = std::strtod(text.c_str(), nullptr);
               if (value > 0 && value <= 86400) return "";
               return "expected more than 0 seconds and at most 86400, got " + text;
             });
}

void add_loading_options(CLI::App& app, EngineConfig& config) {
  add_choice(
      app, "--load-format", {"auto", "dummy"},
      [&config](const std::string& text) {
        config.load_format = text == "dummy" ? LoadFormat::kDummy : LoadFormat::kAuto;
      },
      "The model's safetensors files, or random weights, for which config.json is enough [auto]",
      kEngineGroup);
  add_flag(app,
           {"--parse-special-tokens", "",
            "Special tokens written out in messages become tokens, as in transformers, so that a "
            "message can begin another's turn [they are text]",
            kEngineGroup},
           config.parse_special_tokens);
  add_flag(app,
           {"--skip-tokenizer-init", "",
            "Load no tokenizer: prompts and outputs are token ids [off]", kEngineGroup},
           config.skip_tokenizer_init);
}

}  // namespace

void add_model_argument(CLI::App& app, std::string& model) {
  add_text(app,
           {"MODEL", "",
            "A model folder as Hugging Face publishes it, a .gguf file, or a name in the local "
            "Hugging Face cache (org/name, org/name:Q4_K_M) [the bundled model]"},
           model, [](const std::string& text) -> std::string {
             return text.empty() ? "expected a folder or a name, got an empty text" : "";
           });
}

void add_seed_option(CLI::App& app, uint64_t& seed, const std::string& help,
                     const std::string& group) {
  add_value(app, {"--seed", "N", fmt::format("{} [{}]", help, seed), group},
            [&seed](const std::string& text) {
              const char* end = text.data() + text.size();
              const auto [rest, error] = std::from_chars(text.data(), end, seed);
              if (error != std::errc() || rest != end) {
                throw UsageError(fmt::format("--seed: expected an integer from 0 to {}, got '{}'",
                                             std::numeric_limits<uint64_t>::max(), text));
              }
            });
}

void add_engine_options(CLI::App& app, EngineConfig& config, bool seed_is_taken) {
  add_model_argument(app, config.model);
  add_batching_options(app, config);
  add_memory_options(app, config);
  add_device_options(app, config);
  add_node_options(app, config.cluster);
  add_white_space_option(app, config.structured_whitespace, kEngineGroup);
  add_loading_options(app, config);
  if (!seed_is_taken) {
    add_seed_option(app, config.seed, "Seed of random weights and of sampling", kEngineGroup);
  }
}

void add_white_space_option(CLI::App& app, std::string& white_space, const std::string& group) {
  add_text(app,
           {"--structured-whitespace", "KIND",
            fmt::format("White space that generated JSON may have between its tokens: none; "
                        "compact, a space behind each colon and comma; or N, a space, or a line "
                        "break and white space of N bytes together [{}]",
                        white_space),
            group},
           white_space, [](const std::string& text) -> std::string {
             try {
               grammar::parse_white_space(text);
               return "";
             } catch (const Error& error) {
               return error.what();
             }
           });
}

void add_threads_option(CLI::App& app, int& threads) {
  add_value(
      app, {"--threads", "N", "CPU threads [the physical cores]"},
      [&threads](const std::string& text) {
        constexpr int64_t kMostThreads = 1024;
        const int64_t count = parse_count(text, "--threads");
        if (count < 1 || count > kMostThreads) {
          throw UsageError(fmt::format("--threads: expected 1 to {}, got {}", kMostThreads, count));
        }
        threads = static_cast<int>(count);
      });
}

int64_t parse_count(const std::string& text, const std::string& option) {
  const std::optional<int64_t> value = count_of(text, option);
  if (!value) {
    throw UsageError(fmt::format("{}: expected at most {}, got {}", option,
                                 std::numeric_limits<int64_t>::max(), text));
  }
  return *value;
}

std::string model_folder(const std::string& model) {
  return (model.empty() ? bundled_model() : resolve_model(model)).string();
}

}  // namespace quire::cli
