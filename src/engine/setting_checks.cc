#include "engine/setting_checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

#include "grammar/tokens/language.h"
#include "quire/engine_limits.h"
#include "quire/error.h"
#include "speculative/proposer.h"

namespace quire {

void require(bool ok, const std::string& message) {
  if (!ok) throw Error(message);
}

int num_ranks(const EngineConfig& config) {
  return config.tensor_parallel_size * config.pipeline_parallel_size;
}

int num_ranks_here(const EngineConfig& config) {
  return num_ranks(config) / config.cluster.num_nodes;
}

void check_settings(const EngineConfig& config) {
  const auto positive = [](const char* name, int64_t value) {
    require(value >= 1, fmt::format("--{} is {}; expected 1 or more.", name, value));
  };
  positive("max-num-batched-tokens", config.max_num_batched_tokens);
  positive("max-num-seqs", config.max_num_seqs);
  positive("tensor-parallel-size", config.tensor_parallel_size);
  positive("pipeline-parallel-size", config.pipeline_parallel_size);
  if (config.max_model_len) positive("max-model-len", *config.max_model_len);
  if (config.num_gpu_blocks_override) {
    positive("num-gpu-blocks-override", *config.num_gpu_blocks_override);
  }
  if (config.kv_cache_memory_bytes)
    positive("kv-cache-memory-bytes", *config.kv_cache_memory_bytes);
  require(!config.num_gpu_blocks_override || !config.kv_cache_memory_bytes,
          "--num-gpu-blocks-override and --kv-cache-memory-bytes both say how large the KV cache "
          "is; give one of them.");
  require(config.block_size >= 16 && config.block_size <= 256 && config.block_size % 16 == 0,
          fmt::format("--block-size is {}; expected a multiple of 16 from 16 to 256.",
                      config.block_size));
  require(config.gpu_memory_utilization > 0 && config.gpu_memory_utilization <= 1,
          fmt::format("--gpu-memory-utilization is {}; expected more than 0 and at most 1.",
                      config.gpu_memory_utilization));
  require(config.device == "auto" || config.device == "cpu" || config.device == "cuda",
          fmt::format("--device is \"{}\"; expected auto, cpu or cuda.", config.device));
  constexpr std::array<std::string_view, 5> kCacheTypes{"auto", "fp8", "fp8_e4m3", "fp8_e5m2",
                                                        "int8"};
  require(std::ranges::find(kCacheTypes, config.kv_cache_dtype) != kCacheTypes.end(),
          fmt::format("--kv-cache-dtype is \"{}\"; expected {}.", config.kv_cache_dtype,
                      fmt::join(kCacheTypes, ", ")));
  require(config.quantization == "none" || config.quantization == "fp8" ||
              config.quantization == "int8" || config.quantization == "int4",
          fmt::format("--quantization is \"{}\"; expected none, fp8, int8 or int4.",
                      config.quantization));
  try {
    grammar::parse_white_space(config.structured_whitespace);
  } catch (const Error& error) {
    throw Error(fmt::format("--structured-whitespace: {}.", error.what()));
  }
  require(config.threads >= 0,
          fmt::format("--threads is {}; expected 0 (the physical cores) or more.", config.threads));
  const auto at_most = [](const char* name, int64_t value, int64_t most) {
    require(value <= most, fmt::format("--{} is {}; expected at most {}.", name, value, most));
  };
  at_most("max-num-batched-tokens", config.max_num_batched_tokens, kMaxNumBatchedTokens);
  at_most("max-num-seqs", config.max_num_seqs, kMaxNumSeqs);
  at_most("tensor-parallel-size", config.tensor_parallel_size, kMaxTensorParallelSize);
  at_most("pipeline-parallel-size", config.pipeline_parallel_size, kMaxPipelineParallelSize);
  at_most("threads", config.threads, kMaxThreads);
  require(num_ranks(config) <= kMaxThreads,
          fmt::format("--tensor-parallel-size times --pipeline-parallel-size is {}; expected at "
                      "most {}, as each rank has a thread.",
                      num_ranks(config), kMaxThreads));
  require(config.target_step_s >= 0 && config.target_step_s <= 3600,
          fmt::format("--target-step-time is {}; expected 0 to 3600 seconds (0: no limit).",
                      config.target_step_s));
}

void check_speculation(const EngineConfig& config) {
  if (!config.speculative_config) return;
  check_speculative_config(*config.speculative_config);
}

void check_lora(EngineConfig& config) {
  LoraOptions& lora = config.lora;
  require(lora.enabled || lora.modules.empty(), "--lora-modules needs --enable-lora.");
  if (!lora.enabled) return;
  require(lora.max_loras >= 1 && lora.max_loras <= kMaxLoras,
          fmt::format("--max-loras is {}; expected 1 to {}.", lora.max_loras, kMaxLoras));
  require(lora.max_lora_rank >= 1 && lora.max_lora_rank <= kMaxServedLoraRank,
          fmt::format("--max-lora-rank is {}; expected 1 to {}.", lora.max_lora_rank,
                      kMaxServedLoraRank));
  const int64_t copies = lora.copy_memory_bytes.value_or(0);
  require(
      copies >= 0 && copies <= kMaxLoraCopyBytes,
      fmt::format("--lora-copy-memory-bytes is {}; expected 0 to {}.", copies, kMaxLoraCopyBytes));
  const int most = lora.max_cpu_loras.value_or(lora.max_loras);
  require(most >= lora.max_loras,
          fmt::format("--max-cpu-loras is {}; expected --max-loras, which is {}, or more.", most,
                      lora.max_loras));
  lora.max_cpu_loras = most;
}

}  // namespace quire
