#include "cli/bench/bench_run.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <ostream>
#include <string>

#include "base/progress.h"
#include "cli/bench/step_meter.h"
#include "cli/terminal/text_format.h"

namespace quire::cli {
namespace {

constexpr double kTemperature = 0.6;  // nano-vllm's bench.py

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double mean(const std::vector<double>& values) {
  if (values.empty()) return 0;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// The smallest value that `share` of all do not exceed.
double percentile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  const auto index =
      static_cast<size_t>(std::lround(share * static_cast<double>(values.size() - 1)));
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(index),
                   values.end());
  return values[index];
}

// Bytes of a decode step over sequences whose lengths add up to `context`.
double decode_bytes(const ModelCost& cost, int64_t context) {
  return cost.weight_bytes + cost.kv_bytes_per_token * static_cast<double>(context);
}

// Operations of running `tokens` tokens that each see `mean_context` others; `logits_rows` of them
// need logits.
double flops(const ModelCost& cost, int64_t tokens, double mean_context, int64_t logits_rows) {
  const double per_token =
      cost.flops_per_token + cost.attention_flops_per_context_token * mean_context;
  return static_cast<double>(tokens) * per_token +
         static_cast<double>(logits_rows) * cost.output_layer_flops;
}

double ratio(double amount, double seconds) {
  return seconds > 0 ? amount / seconds : 0;
}

// Null where it was not measured, which is 0.
Json measured(double value) {
  return value > 0 ? Json(value) : Json();
}

// What the outputs of one step say: the tokens that were not their sequence's first, and the
// context that these looked back on.
struct DecodedTokens {
  int64_t count = 0;
  int64_t context = 0;
};

class WorkloadRun {
 public:
  WorkloadRun(LLMEngine& engine, const BenchWorkload& workload, const ModelCost& cost,
              BenchFigures& figures)
      : engine_(engine),
        workload_(workload),
        cost_(cost),
        figures_(figures),
        generated_(workload.prompts.size()) {}

  void run() {
    const auto start = std::chrono::steady_clock::now();
    const EngineStats before = engine_.stats();
    add_requests();
    StepMeter meter(before);
    ProgressBar bar(STDERR_FILENO, "Running");
    const auto total = static_cast<double>(workload_.num_output_tokens());
    while (!engine_.is_finished()) {
      const DecodedTokens decoded = take(engine_.step());
      account(meter.update(engine_.stats()), decoded);
      bar.update(static_cast<double>(meter.total().output_tokens) / total, meter.rates());
    }
    figures_.elapsed_s += seconds_since(start);
    const EngineStats after = engine_.stats();
    figures_.gpu_s += after.gpu_s - before.gpu_s;
    add_drafts(before.speculative, after.speculative);
    figures_.prefill_s += meter.total().prefill_s;
    figures_.decode_s += meter.total().decode_s;
    figures_.decode_step_tokens += meter.decode_step_tokens();
    figures_.num_seqs += static_cast<int64_t>(workload_.prompts.size());
    figures_.prompt_tokens += workload_.num_prompt_tokens();
    figures_.output_tokens += std::accumulate(generated_.begin(), generated_.end(), int64_t{0});
  }

 private:
  void add_drafts(const SpeculativeStats& before, const SpeculativeStats& after) {
    figures_.drafts.num_drafts += after.num_drafts - before.num_drafts;
    figures_.drafts.num_draft_tokens += after.num_draft_tokens - before.num_draft_tokens;
    figures_.drafts.num_accepted_tokens += after.num_accepted_tokens - before.num_accepted_tokens;
  }

  void add_requests() {
    SamplingParams params;
    params.temperature = kTemperature;
    params.ignore_eos = true;
    params.structured_output = workload_.structured_output;
    for (size_t i = 0; i < workload_.prompts.size(); ++i) {
      params.max_tokens = workload_.output_lengths[i];
      RequestOptions options = {.output_kind = OutputKind::kDelta};
      if (!workload_.loras.empty()) options.lora = workload_.loras[i % workload_.loras.size()];
      engine_.add_request(std::to_string(i), workload_.prompts[i], params, options);
      const auto length = static_cast<int64_t>(workload_.prompts[i].size());
      figures_.prefill_flops += flops(cost_, length, static_cast<double>(length) / 2, 1);
    }
  }

  DecodedTokens take(const std::vector<RequestOutput>& outputs) {
    DecodedTokens decoded;
    for (const RequestOutput& output : outputs) {
      if (!output.error.empty()) throw Error(output.error);
      const size_t index = std::stoul(output.request_id);
      const auto count = static_cast<int64_t>(output.outputs.at(0).token_ids.size());
      const int64_t before = generated_[index];
      generated_[index] += count;
      if (before > 0 && count > 0) {
        decoded.count += count;
        decoded.context += static_cast<int64_t>(workload_.prompts[index].size()) + before;
      }
      if (output.finished) record_latency(output.metrics, generated_[index]);
    }
    return decoded;
  }

  void account(const StepMeter::Step& step, const DecodedTokens& decoded) {
    if (step.decode_s > 0) {
      figures_.decode_bytes += decode_bytes(cost_, decoded.context);
    } else if (decoded.count > 0) {
      const double mean_context =
          static_cast<double>(decoded.context) / static_cast<double>(decoded.count);
      figures_.prefill_flops += flops(cost_, decoded.count, mean_context, decoded.count);
    }
  }

  void record_latency(const RequestMetrics& metrics, int64_t num_tokens) {
    figures_.ttft_s.push_back(metrics.ttft_s);
    if (num_tokens > 1) {
      figures_.tpot_s.push_back((metrics.total_s - metrics.ttft_s) /
                                static_cast<double>(num_tokens - 1));
    }
  }

  LLMEngine& engine_;
  const BenchWorkload& workload_;
  const ModelCost& cost_;
  BenchFigures& figures_;
  std::vector<int64_t> generated_;
};

}  // namespace

void run_workload(LLMEngine& engine, const BenchWorkload& workload, const ModelCost& cost,
                  BenchFigures& figures) {
  WorkloadRun(engine, workload, cost, figures).run();
}

Json figures_to_json(const BenchFigures& figures, const MachineLimits& limits) {
  const auto prompt_tokens = static_cast<double>(figures.prompt_tokens);
  Json json;
  json["num_seqs"] = figures.num_seqs;
  json["prompt_tokens"] = figures.prompt_tokens;
  json["output_tokens"] = figures.output_tokens;
  json["elapsed_s"] = figures.elapsed_s;
  json["output_tokens_per_s"] =
      ratio(static_cast<double>(figures.output_tokens), figures.elapsed_s);
  json["prefill_tokens_per_s"] = ratio(prompt_tokens, figures.prefill_s);
  json["decode_tokens_per_s"] =
      ratio(static_cast<double>(figures.decode_step_tokens), figures.decode_s);
  json["ttft_ms"] = 1e3 * mean(figures.ttft_s);
  json["ttft_p50_ms"] = 1e3 * percentile(figures.ttft_s, 0.5);
  json["ttft_p99_ms"] = 1e3 * percentile(figures.ttft_s, 0.99);
  json["tpot_ms"] = 1e3 * mean(figures.tpot_s);
  json["tpot_p50_ms"] = 1e3 * percentile(figures.tpot_s, 0.5);
  json["tpot_p99_ms"] = 1e3 * percentile(figures.tpot_s, 0.99);
  // Of the whole run; null on the CPU.
  json["gpu_idle"] = figures.gpu_s > 0 ? Json(1 - ratio(figures.gpu_s, figures.elapsed_s)) : Json();
  json["num_drafts"] = figures.drafts.num_drafts;
  json["num_draft_tokens"] = figures.drafts.num_draft_tokens;
  json["num_accepted_draft_tokens"] = figures.drafts.num_accepted_tokens;
  // Null without drafts.
  json["mean_acceptance_length"] = measured(figures.drafts.mean_acceptance_length());
  json["achieved_gb_s"] = 1e-9 * ratio(figures.decode_bytes, figures.decode_s);
  json["read_gb_s"] = measured(limits.read_gb_s);
  json["achieved_gflops"] = 1e-9 * ratio(figures.prefill_flops, figures.prefill_s);
  json["peak_gflops"] = measured(limits.peak_gflops);
  return json;
}

void print_figures(const BenchFigures& figures, const MachineLimits& limits, Terminal& terminal) {
  const Json json = figures_to_json(figures, limits);
  const auto number = [&](const char* key, const char* format) {
    return fmt::format(fmt::runtime(format), json[key].get<double>());
  };
  // Against the ceiling, where that was measured.
  const auto share = [&](const char* unit, const char* achieved, const char* ceiling,
                         const char* what) -> std::string {
    if (json[ceiling].is_null()) return unit;
    const double most = json[ceiling].get<double>();
    return fmt::format("{}, {:.0f} % of the {:.1f} {} that this machine {}", unit,
                       100 * json[achieved].get<double>() / most, most, unit, what);
  };
  Table table({Table::Align::kLeft, Table::Align::kRight, Table::Align::kLeft});
  table.add({"sequences", with_commas(figures.num_seqs), ""});
  table.add({"prompt tokens", with_commas(figures.prompt_tokens), ""});
  table.add({"output tokens", with_commas(figures.output_tokens), ""});
  table.add({"elapsed", number("elapsed_s", "{:.2f}"), "s"});
  table.add({"output", number("output_tokens_per_s", "{:.1f}"), "tokens/s over the whole run"});
  table.add({"prefill", number("prefill_tokens_per_s", "{:.1f}"), "tokens/s"});
  table.add({"decode", number("decode_tokens_per_s", "{:.1f}"), "tokens/s"});
  table.add({"time to first token", number("ttft_ms", "{:.1f}"),
             fmt::format("ms on average, p50 {}, p99 {}", number("ttft_p50_ms", "{:.1f}"),
                         number("ttft_p99_ms", "{:.1f}"))});
  table.add({"time per token", number("tpot_ms", "{:.2f}"),
             fmt::format("ms on average, p50 {}, p99 {}", number("tpot_p50_ms", "{:.2f}"),
                         number("tpot_p99_ms", "{:.2f}"))});
  table.add({"decode reads", number("achieved_gb_s", "{:.1f}"),
             share("GB/s", "achieved_gb_s", "read_gb_s", "reads")});
  table.add({"prefill computes", number("achieved_gflops", "{:.1f}"),
             share("GFLOP/s", "achieved_gflops", "peak_gflops", "does")});
  if (!json["mean_acceptance_length"].is_null()) {
    table.add({"drafts", number("mean_acceptance_length", "{:.2f}"),
               fmt::format("tokens each on average; of {} draft tokens {} were kept",
                           with_commas(figures.drafts.num_draft_tokens),
                           with_commas(figures.drafts.num_accepted_tokens))});
  }
  if (!json["gpu_idle"].is_null()) {
    const double idle = 100 * json["gpu_idle"].get<double>();
    table.add({"GPU idle", fmt::format("{:.2f}", idle), "% of the time"});
  }
  terminal.out << table.str();
}

}  // namespace quire::cli
