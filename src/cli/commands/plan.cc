// quire plan: where the memory of an engine would go, before anything is loaded.
#include "quire/plan.h"
#include "base/ceil_div.h"

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <optional>
#include <ostream>
#include <set>

#include "cli/commands/command.h"
#include "cli/json_lines.h"
#include "cli/options/engine_options.h"
#include "cli/options/lora_options.h"
#include "cli/options/option_helpers.h"
#include "cli/terminal/text_format.h"
#include "cli/usage_error.h"

namespace quire::cli {
namespace {

constexpr const char* kPlanFooter = R"(Examples:
  quire plan ~/models/Qwen3-0.6B
  quire plan ~/models/Qwen3-0.6B --kv-cache-memory-bytes 4G --max-model-len 8K --json
  quire plan ~/models/Qwen3-0.6B --enable-lora --max-loras 8
  quire plan ~/models/Llama-3.1-405B --pipeline-parallel-size 4 --tensor-parallel-size 8 --device-memory 80G)";

constexpr int64_t kMostDeviceMemory = int64_t{1} << 50;

// How many sequences of `length` tokens fit in the cache at once.
int64_t sequences_that_fit(const MemoryPlan& plan, int64_t length) {
  return plan.num_blocks / ceil_div(length, plan.block_size);
}

// Powers of four up to the longest a sequence may be, and that.
std::set<int64_t> sequence_lengths(const MemoryPlan& plan) {
  std::set<int64_t> lengths = {plan.max_model_len};
  for (int64_t length = 256; length < plan.max_model_len; length *= 4) lengths.insert(length);
  return lengths;
}

Json to_json(const MemoryPlan& plan) {
  Json json;
  json["model"] = plan.model;
  json["architecture"] = plan.architecture;
  json["device"] = plan.device;
  json["device_name"] = plan.device_name;
  json["device_note"] = plan.device_note;
  json["dtype"] = plan.dtype;
  json["threads"] = plan.threads;
  json["num_parameters"] = plan.num_parameters;
  json["tensor_parallel_size"] = plan.tensor_parallel_size;
  json["pipeline_parallel_size"] = plan.pipeline_parallel_size;
  json["stages"] = Json::array();
  for (const PlannedStage& stage : plan.stages) {
    json["stages"].push_back({{"first_layer", stage.first_layer},
                              {"num_layers", stage.num_layers},
                              {"weight_bytes", stage.weight_bytes},
                              {"kv_bytes", stage.kv_bytes}});
  }
  json["buffers"] = Json::array();
  for (const PlannedBuffer& buffer : plan.buffers) {
    json["buffers"].push_back(
        {{"name", buffer.name}, {"bytes", buffer.bytes}, {"detail", buffer.detail}});
  }
  json["total_bytes"] = plan.total_bytes;
  json["available_bytes"] = plan.available_bytes;
  json["block_size"] = plan.block_size;
  json["bytes_per_block"] = plan.bytes_per_block;
  json["num_blocks"] = plan.num_blocks;
  json["num_cache_tokens"] = plan.num_cache_tokens;
  json["max_model_len"] = plan.max_model_len;
  json["max_num_seqs"] = plan.max_num_seqs;
  json["max_num_batched_tokens"] = plan.max_num_batched_tokens;
  json["max_full_length_seqs"] = plan.max_full_length_seqs;
  json["sequences_that_fit"] = Json::array();
  for (const int64_t length : sequence_lengths(plan)) {
    json["sequences_that_fit"].push_back(
        {{"length", length}, {"sequences", sequences_that_fit(plan, length)}});
  }
  return json;
}

void print_stages(const MemoryPlan& plan, Terminal& terminal) {
  terminal.out << styled("Stages", Style::kBold, terminal.out_colours) << '\n';
  Table table(
      {Table::Align::kRight, Table::Align::kLeft, Table::Align::kRight, Table::Align::kRight});
  table.add({"stage", "layers", "weights", "kv cache"});
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    const PlannedStage& stage = plan.stages[i];
    table.add({std::to_string(i),
               fmt::format("{}: {} to {}", stage.num_layers, stage.first_layer,
                           stage.first_layer + stage.num_layers - 1),
               format_bytes(stage.weight_bytes), format_bytes(stage.kv_bytes)});
  }
  terminal.out << table.str();
  if (plan.device == "cuda") {
    terminal.out << "  The stage with room for the fewest blocks decides how many all have.\n";
  }
  terminal.out << '\n';
}

void print_table(const MemoryPlan& plan, Terminal& terminal) {
  std::ostream& out = terminal.out;
  const auto heading = [&](std::string_view text) {
    out << styled(text, Style::kBold, terminal.out_colours) << '\n';
  };
  heading(plan.model);
  const int stages = plan.pipeline_parallel_size;
  out << fmt::format("  {}, {} parameters, {} on {}, tensor parallel size {}{}\n",
                     plan.architecture, with_commas(plan.num_parameters), plan.dtype,
                     plan.device_name.empty() ? plan.device : plan.device_name,
                     plan.tensor_parallel_size,
                     stages == 1 ? "" : fmt::format(", pipeline parallel size {}", stages));
  if (!plan.device_note.empty()) out << "  " << plan.device_note << '\n';
  if (!plan.threads.empty()) out << "  " << plan.threads << '\n';
  out << '\n';
  heading("Memory");
  Table buffers(
      {Table::Align::kLeft, Table::Align::kRight, Table::Align::kRight, Table::Align::kLeft});
  for (const PlannedBuffer& buffer : plan.buffers) {
    buffers.add(
        {buffer.name, format_bytes(buffer.bytes), with_commas(buffer.bytes), buffer.detail});
  }
  buffers.add({"total", format_bytes(plan.total_bytes), with_commas(plan.total_bytes), ""});
  buffers.add(
      {"available", format_bytes(plan.available_bytes), with_commas(plan.available_bytes), ""});
  out << buffers.str() << '\n';
  if (!plan.stages.empty()) print_stages(plan, terminal);
  heading("KV cache");
  out << fmt::format("  {} blocks of {} tokens, {} each: {} tokens in all\n\n",
                     with_commas(plan.num_blocks), plan.block_size,
                     format_bytes(plan.bytes_per_block), with_commas(plan.num_cache_tokens));
  heading("Sequences that fit at once");
  Table sequences({Table::Align::kRight, Table::Align::kLeft});
  for (const int64_t length : sequence_lengths(plan)) {
    sequences.add({with_commas(sequences_that_fit(plan, length)),
                   fmt::format("of {} tokens{}", with_commas(length),
                               length == plan.max_model_len ? " (the longest)" : "")});
  }
  out << sequences.str();
  const int64_t step_tokens =
      std::min(plan.max_num_batched_tokens, plan.max_num_seqs * plan.max_model_len);
  out << fmt::format("  A step runs at most {} sequence{} and {} tokens.\n",
                     with_commas(plan.max_num_seqs), plan.max_num_seqs == 1 ? "" : "s",
                     with_commas(step_tokens));
}

class PlanCommand : public Command {
 public:
  explicit PlanCommand(CLI::App& root)
      : app_(add_command(root, "plan", "Show what a model takes of memory, before loading it",
                         kPlanFooter)) {
    add_flag(*app_, {"--json", "", "Print a JSON object"}, json_);
    add_value(*app_,
              {"--device-memory", "BYTES",
               "Plan for as many GPUs as ranks, each with so much memory, e.g. 80G; the machine "
               "need not have them"},
              [this](const std::string& text) {
                device_memory_ = parse_count(text, "--device-memory");
                if (*device_memory_ >= 1 && *device_memory_ <= kMostDeviceMemory) return;
                throw UsageError(fmt::format("--device-memory: expected 1 to {}, got {}",
                                             kMostDeviceMemory, text));
              });
    add_lora_engine_options(*app_, config_.lora);
    add_engine_options(*app_, config_, /*seed_is_taken=*/false);
  }

  const CLI::App& app() const override { return *app_; }

  int run(Terminal& terminal) override {
    check_lora_engine_options(*app_, config_.lora);
    config_.model = model_folder(config_.model);
    const MemoryPlan memory =
        device_memory_ ? plan_for_gpus(config_, *device_memory_) : plan(config_);
    if (json_) {
      terminal.out << to_line(to_json(memory)) << '\n';
    } else {
      print_table(memory, terminal);
    }
    return 0;
  }

 private:
  CLI::App* app_;
  EngineConfig config_;
  std::optional<int64_t> device_memory_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_plan_command(CLI::App& root) {
  return std::make_unique<PlanCommand>(root);
}

}  // namespace quire::cli
