// quire bench: how fast a model runs on this machine, beside what the machine can do at most.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <ostream>

#include "cli/bench/bench_run.h"
#include "cli/commands/command.h"
#include "cli/loading.h"
#include "cli/node.h"
#include "cli/options/constraint_options.h"
#include "cli/options/engine_options.h"
#include "cli/options/lora_options.h"
#include "cli/options/option_helpers.h"
#include "cli/usage_error.h"
#include "quire/plan.h"

namespace quire::cli {
namespace {

// What nano-vllm's bench.py sets; a model with a shorter context keeps its own.
constexpr int64_t kDefaultModelLen = 4096;
// Output tokens of a warm-up: enough to meet each kind of step.
constexpr int64_t kWarmUpTokens = 8;

constexpr const char* kBenchGroup = "Workload";

constexpr const char* kThroughputFooter =
    R"(By default this is nano-vllm's bench.py: 256 sequences of 100 to 1,024 prompt tokens and 100 to 1,024
output tokens, drawn as Python's random module does with seed 0 (142,827 and 133,966 in all), at temperature 0.6.

Decode reads count the weights and the KV cache once a step; prefill computes count the products of
the model's definition. Beside each stands what this machine was measured to do at most; GPUs are not measured.

Examples:
  quire bench throughput ~/models/Qwen3-0.6B --num-seqs 16
  quire bench throughput ~/models/Qwen3-0.6B --load-format dummy --input-len 128 --output-len 64:256)";

constexpr const char* kLatencyFooter =
    R"(Runs the same batch --num-iters times, each time with other prompts, after a shorter one as warm-up.

Examples:
  quire bench latency ~/models/Qwen3-0.6B --batch 1 --input-len 512 --output-len 64
  quire bench latency ~/models/Qwen3-0.6B --load-format dummy --json
  quire bench latency ~/models/Qwen3-0.6B --batch 8 --lora caps=./caps --lora rhyme=./rhyme
  quire bench latency ~/models/Qwen3-0.6B --batch 64 --json-schema schema.json)";

int64_t parse_positive(const std::string& text, const std::string& option) {
  const int64_t value = parse_count(text, option);
  if (value < 1 || value > (int64_t{1} << 20)) {
    throw UsageError(fmt::format("{}: expected 1 to {}, got {}", option, int64_t{1} << 20, value));
  }
  return value;
}

// What both benchmarks do: load, warm up, run some workloads, report.
class BenchCommand : public Command {
 public:
  const CLI::App& app() const override { return *app_; }
  int run(Terminal& terminal) override;

 protected:
  BenchCommand(CLI::App& bench, const char* name, const char* description, const char* footer)
      : app_(add_command(bench, name, description, footer)) {}
  void add_common_options();
  void add_count_option(const char* option, int64_t& value, const std::string& help);
  void add_length_option(const char* option, LengthRange& range, const std::string& help);

  // Run first and not measured: an engine's first steps pay for what later ones do not.
  virtual BenchWorkload warm_up(int64_t vocab_size) const = 0;
  virtual std::vector<BenchWorkload> workloads(int64_t vocab_size) const = 0;

  CLI::App* app_;
  EngineConfig config_;

 private:
  // Makes all follow the constraint that was given, if one was.
  void constrain(BenchWorkload& warm_up, std::vector<BenchWorkload>& runs) const;

  // Has the sequences take the adapters that were given.
  void adapt(EngineConfig& config, BenchWorkload& warm_up, std::vector<BenchWorkload>& runs) const;

  SamplingFields constraint_;
  std::vector<LoraPath> loras_;
  bool json_ = false;
};

void BenchCommand::add_common_options() {
  add_seed_option(*app_, config_.seed, "Seed of the lengths and tokens, and of dummy weights",
                  kBenchGroup);
  add_constraint_options(*app_, constraint_);
  add_lora_engine_options(*app_, config_.lora);
  add_lora_option(*app_, loras_, "A LoRA adapter; may be given again: sequences take them in turn");
  add_flag(*app_, {"--json", "", "Print a JSON object"}, json_);
  add_engine_options(*app_, config_, /*seed_is_taken=*/true);
}

void BenchCommand::add_count_option(const char* option, int64_t& value, const std::string& help) {
  add_value(*app_, {option, "N", fmt::format("{} [{}]", help, value), kBenchGroup},
            [&value, option](const std::string& text) { value = parse_positive(text, option); });
}

void BenchCommand::add_length_option(const char* option, LengthRange& range,
                                     const std::string& help) {
  add_value(
      *app_, {option, "A:B", fmt::format("{} [{}:{}]", help, range.low, range.high), kBenchGroup},
      [&range, option](const std::string& text) { range = parse_length_range(text, option); });
}

void BenchCommand::constrain(BenchWorkload& warm_up, std::vector<BenchWorkload>& runs) const {
  const std::optional<StructuredOutput> constraint = constraint_.apply({}).structured_output;
  if (!constraint) return;
  // The few tokens of a warm-up may have no room for an answer.
  warm_up.structured_output = constraint;
  std::ranges::fill(warm_up.output_lengths, std::ranges::max(runs.front().output_lengths));
  for (BenchWorkload& run : runs) run.structured_output = constraint;
}

void BenchCommand::adapt(EngineConfig& config, BenchWorkload& warm_up,
                         std::vector<BenchWorkload>& runs) const {
  if (loras_.empty()) return check_lora_engine_options(*app_, config.lora);
  LoraOptions given = lora_options_for(loras_);
  given.max_loras = std::max(given.max_loras, config.lora.max_loras);
  given.max_cpu_loras = config.lora.max_cpu_loras.value_or(
      std::max(given.max_loras, static_cast<int>(loras_.size())));
  given.max_lora_rank = std::max(given.max_lora_rank, config.lora.max_lora_rank);
  given.copy_memory_bytes = config.lora.copy_memory_bytes;
  config.lora = given;
  for (const LoraPath& adapter : loras_) warm_up.loras.push_back(adapter.name);
  for (BenchWorkload& run : runs) run.loras = warm_up.loras;
}

int BenchCommand::run(Terminal& terminal) {
  EngineConfig config = ready_to_load(config_, terminal);
  const ModelInfo info = inspect(config.model);
  if (!config.max_model_len) config.max_model_len = std::min(kDefaultModelLen, info.max_model_len);
  if (config.cluster.node_rank > 0) return run_node(config, 0, terminal);
  BenchWorkload first = warm_up(info.vocab_size);
  std::vector<BenchWorkload> runs = workloads(info.vocab_size);
  constrain(first, runs);
  adapt(config, first, runs);
  for (const BenchWorkload& workload : runs) {
    if (workload.max_sequence_length() > *config.max_model_len) {
      throw Error(
          fmt::format("a sequence of the workload has {} tokens and the longest that {} takes is "
                      "{}: set --input-len "
                      "and --output-len lower, or --max-model-len higher if the model allows",
                      workload.max_sequence_length(), config.model, *config.max_model_len));
    }
  }
  const ModelCost cost = model_cost(config);
  LLMEngine engine(config);
  report_device(engine.memory_plan(), terminal);
  BenchFigures figures_of_warm_up;
  run_workload(engine, first, cost, figures_of_warm_up);
  BenchFigures figures;
  for (const BenchWorkload& workload : runs) run_workload(engine, workload, cost, figures);
  const MachineLimits limits = measure_machine(engine.config());
  if (json_) {
    terminal.out << to_line(figures_to_json(figures, limits)) << '\n';
  } else {
    print_figures(figures, limits, terminal);
  }
  return 0;
}

class ThroughputCommand : public BenchCommand {
 public:
  explicit ThroughputCommand(CLI::App& bench)
      : BenchCommand(bench, "throughput", "Run many sequences at once", kThroughputFooter) {
    add_count_option("--num-seqs", num_seqs_, "Sequences");
    add_length_option("--input-len", input_, "Prompt tokens of a sequence");
    add_length_option("--output-len", output_, "Output tokens of a sequence");
    add_common_options();
  }

 private:
  BenchWorkload warm_up(int64_t vocab_size) const override {
    return make_bench_workload(1, {4, 4}, {4, 4}, config_.seed, vocab_size);
  }

  std::vector<BenchWorkload> workloads(int64_t vocab_size) const override {
    return {make_bench_workload(num_seqs_, input_, output_, config_.seed, vocab_size)};
  }

  int64_t num_seqs_ = 256;
  LengthRange input_ = {.low = 100, .high = 1024};
  LengthRange output_ = {.low = 100, .high = 1024};
};

class LatencyCommand : public BenchCommand {
 public:
  explicit LatencyCommand(CLI::App& bench)
      : BenchCommand(bench, "latency", "Run one small batch after another", kLatencyFooter) {
    add_count_option("--batch", batch_, "Sequences at once");
    add_count_option("--input-len", input_len_, "Prompt tokens of each");
    add_count_option("--output-len", output_len_, "Output tokens of each");
    add_count_option("--num-iters", num_iters_, "Batches");
    add_common_options();
  }

 private:
  // A batch like those to come, with prompts of its own.
  BenchWorkload warm_up(int64_t vocab_size) const override {
    const int64_t output_len = std::min(output_len_, kWarmUpTokens);
    return make_bench_workload(batch_, {input_len_, input_len_}, {output_len, output_len},
                               config_.seed - 1, vocab_size);
  }

  std::vector<BenchWorkload> workloads(int64_t vocab_size) const override {
    std::vector<BenchWorkload> runs;
    for (int64_t i = 0; i < num_iters_; ++i) {
      runs.push_back(make_bench_workload(batch_, {input_len_, input_len_},
                                         {output_len_, output_len_},
                                         config_.seed + static_cast<uint64_t>(i), vocab_size));
    }
    return runs;
  }

  int64_t batch_ = 1;
  int64_t input_len_ = 128;
  int64_t output_len_ = 128;
  int64_t num_iters_ = 3;
};

}  // namespace

std::unique_ptr<Command> make_bench_throughput_command(CLI::App& bench) {
  return std::make_unique<ThroughputCommand>(bench);
}

std::unique_ptr<Command> make_bench_latency_command(CLI::App& bench) {
  return std::make_unique<LatencyCommand>(bench);
}

}  // namespace quire::cli
