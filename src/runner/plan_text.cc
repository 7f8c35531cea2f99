#include "runner/plan_text.h"

#include <fmt/format.h>

#include "core/kv_cache_view.h"

namespace quire {

std::string size_text(int64_t bytes) {
  constexpr int64_t kMiB = int64_t{1} << 20;
  constexpr int64_t kGiB = int64_t{1} << 30;
  if (bytes >= kGiB) {
    return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / static_cast<double>(kGiB));
  }
  if (bytes >= kMiB) {
    return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / static_cast<double>(kMiB));
  }
  return fmt::format("{} byte{}", bytes, bytes == 1 ? "" : "s");
}

std::string describe_ranks(const PlanRequest& request) {
  if (request.num_stages > 1) {
    return fmt::format(", {} stages of {} rank{}", request.num_stages, request.model.size,
                       request.model.size == 1 ? "" : "s");
  }
  return request.model.size > 1 ? fmt::format(", {} ranks", request.model.size) : std::string();
}

std::string available_memory_of(const PlanRequest& request) {
  if (request.on_cpu()) return size_text(request.available_bytes) + " of memory is free";
  return fmt::format("{} may be taken (--gpu-memory-utilization {} of what is free on {})",
                     size_text(request.available_bytes), request.gpu_memory_utilization,
                     request.num_ranks() == 1
                         ? "the GPU"
                         : fmt::format("the {} GPUs together", request.num_ranks()));
}

std::string more_memory_advice(const PlanRequest& request) {
  if (request.on_cpu()) return "Free some memory, take a smaller model";
  return "Free memory of the GPU or raise --gpu-memory-utilization, spread the model over more "
         "GPUs with --tensor-parallel-size, take a smaller model";
}

std::string shorter_length_advice(const PlanRequest& request, int64_t blocks) {
  const int64_t tokens = blocks * request.block_size;
  if (tokens < 2) return "Free some memory";
  return fmt::format("Set --max-model-len to {} or less", tokens);
}

std::string larger_cache_advice(const PlanRequest& request) {
  if (request.kv_cache_memory_bytes) return "raise --kv-cache-memory-bytes";
  if (request.on_cpu()) {
    const bool could_be_narrow =
        size_of(request.kv_cache_dtype) > 1 && takes_narrow_cache(request.model.config.head_dim);
    return could_be_narrow ? "set --kv-cache-memory-bytes yourself, or take a smaller cache with "
                             "--kv-cache-dtype int8"
                           : "set --kv-cache-memory-bytes yourself";
  }
  return "raise --gpu-memory-utilization, lower --max-num-batched-tokens or --max-num-seqs, halve "
         "the cache with --kv-cache-dtype fp8, or spread it over more GPUs with "
         "--tensor-parallel-size";
}

std::string describe_copies(const PlanRequest& request) {
  if (request.lora_copy_bytes == 0) return "";
  return fmt::format(", {} each for trained copies of matrices",
                     size_text(request.lora_copy_bytes));
}

std::string fewer_loras_advice(const PlanRequest& request) {
  if (request.max_loras == 0) return "";
  return fmt::format(
      " Adapters have room for --max-loras {} of --max-lora-rank {}{}; fewer or smaller ones take "
      "less.",
      request.max_loras, request.max_lora_rank, describe_copies(request));
}

}  // namespace quire
