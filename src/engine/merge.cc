#include "quire/merge.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/thread_pool.h"
#include "engine/byte_progress.h"
#include "engine/merged_weights.h"
#include "engine/model_files.h"
#include "engine/output_folder.h"
#include "hub/model_path.h"
#include "loader/gguf_model.h"
#include "loader/model_config.h"

namespace quire {
namespace fs = std::filesystem;
namespace {

void check_is_dense(const fs::path& model, const ModelConfig& config) {
  if (!config.quantization) return;
  throw Error(fmt::format(
      "{}: the base model is quantised ({}); expected the dense one that it was made from. Merge "
      "into that, then quantise the result.",
      model.string(), config.quantization->describe({})));
}

// Files beside the adapter's own: a tokenizer or a chat template that may be other than the base's.
std::vector<std::string> files_beside(const LoraAdapter& adapter) {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(adapter.folder())) {
    std::string name = entry.path().filename().string();
    if (name.starts_with('.') || name.starts_with("adapter_") || name == "README.md") continue;
    names.push_back(std::move(name));
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace

std::optional<MergeResult> merge_lora(const MergeOptions& options) {
  const fs::path model = resolve_model(options.model);
  if (is_gguf_path(model)) {
    throw Error(
        fmt::format("{}: an adapter cannot be merged into a GGUF file; expected the "
                    "model's folder of safetensors.",
                    model.string()));
  }
  const ModelConfig config = load_model_config(model);
  check_is_dense(model, config);
  const LoraAdapter adapter = LoraAdapter::open(options.adapter);
  const Checkpoint checkpoint = Checkpoint::open(model);
  const LoraBase base = {checkpoint.tensors(), model.string(), config.tie_word_embeddings};

  ThreadPool pool(options.threads > 0 ? options.threads : cpu_topology().num_physical_cores);
  check_lora_fits(adapter, base, pool);
  const MergePlan plan = plan_merge(adapter, base);
  OutputFolder folder(options.out, "merged");
  ByteProgress progress(options.on_progress, plan.bytes());
  const EndableLoops loops(pool, [&progress] { return progress.goes_on(); });
  MergeResult result;
  try {
    result.left_out = copy_texts(model, folder.partial());
    write_merged(plan, checkpoint, folder.partial(), loops,
                 [&progress](size_t bytes) { progress.add(bytes); });
  } catch (const WorkEnded&) {
    return std::nullopt;
  }
  rewrite_config(model, folder.partial(), [&](nlohmann::ordered_json& json) {
    if (plan.untied) json["tie_word_embeddings"] = false;
  });
  folder.put_in_place();

  result.model = model;
  result.adapter = options.adapter;
  result.out = options.out;
  result.kind = adapter.config().kind();
  result.num_merged = plan.num_changed();
  result.untied = plan.untied;
  result.bytes = static_cast<int64_t>(plan.bytes());
  result.adapter_left_out = files_beside(adapter);
  return result;
}

}  // namespace quire
