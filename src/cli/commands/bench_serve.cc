// quire bench serve: puts a server of OpenAI's API under load and measures what its clients see.
#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <ostream>
#include <utility>

#include "base/json_text.h"
#include "base/progress.h"
#include "cli/bench/bench_serve_report.h"
#include "cli/bench/bench_serve_requests.h"
#include "cli/bench/bench_workload.h"
#include "cli/commands/command.h"
#include "cli/options/engine_options.h"
#include "cli/options/option_helpers.h"
#include "cli/options/sampling_fields.h"
#include "cli/terminal/interrupts.h"
#include "cli/usage_error.h"
#include "loadgen/load_run.h"
#include "loadgen/served_model.h"

namespace quire::cli {
namespace {

using loadgen::LoadReport;
using loadgen::LoadRequest;

constexpr const char* kBenchServeFooter =
    R"(By default the work is that of 'quire bench throughput' with the same --num-prompts (there --num-seqs),
lengths and seed, token for token, at temperature 0.6 and past the end-of-sequence token. A server that
takes no token ids, and the chat endpoint, get as many common words.

Lines of --dataset are those of 'quire generate --prompt-file FILE.jsonl':
  {"prompt": "text"}   {"prompt_token_ids": [1, 2]}   {"messages": [{"role": "user", "content": "hi"}]}
with any sampling options ("max_tokens": 64), and "expected" with the text that must come back.

Works with any server of OpenAI's API that streams. Exit code 1 if a request failed.

Examples:
  quire bench serve --num-prompts 64 --input-len 128 --output-len 64:256
  quire bench serve --request-rate 4 --num-prompts 200 --json
  quire bench serve --dataset prompts.jsonl --temperature 0 --expect-identical --max-concurrency 1000 --duration 600)";

constexpr double kBenchTemperature = 0.6;  // that of bench throughput
constexpr int64_t kMaxCount = int64_t{1} << 20;

int64_t parse_positive_count(const std::string& text, const std::string& option) {
  const int64_t value = parse_count(text, option);
  if (value < 1 || value > kMaxCount) {
    throw UsageError(fmt::format("{}: expected 1 to {}, got {}", option, kMaxCount, value));
  }
  return value;
}

// A number above 0, or "inf".
double parse_positive_number(const std::string& text, const std::string& option) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(value > 0)) {
    throw UsageError(fmt::format("{}: expected a number above 0, got '{}'", option, text));
  }
  return value;
}

class BenchServeCommand : public Command {
 public:
  explicit BenchServeCommand(CLI::App& bench);

  const CLI::App& app() const override { return *app_; }
  int run(Terminal& terminal) override;

 private:
  struct Requests {
    std::vector<LoadRequest> measured;
    std::vector<LoadRequest> warmup;
  };

  void add_server_options();
  void add_workload_options();
  void add_load_options();
  void add_count(const char* option, std::optional<int64_t>& value, const char* help,
                 const char* group);
  void add_number(const char* option, double& value, const char* help, const char* group);
  void add_length(const char* option, std::optional<LengthRange>& range, const std::string& help);

  void check_options() const;
  RequestFields request_fields(const std::string& model) const;
  std::vector<LoadRequest> random_requests(int64_t count, uint64_t seed, RandomPrompts kind,
                                           const loadgen::ServedModel& model) const;
  Requests make_requests(const loadgen::HttpOptions& http, const loadgen::ServedModel& model,
                         Terminal& terminal) const;
  LoadReport run_with_progress(const std::vector<LoadRequest>& requests,
                               const loadgen::LoadOptions& options, const char* label) const;
  void warm_up(const std::vector<LoadRequest>& requests, loadgen::LoadOptions options) const;
  void save(const Json& json) const;

  CLI::App* app_;
  loadgen::HttpOptions http_ = {.base_url = "http://127.0.0.1:8000",
                                .api_key = {},
                                .insecure = false,
                                .timeout_s = 6 * 60 * 60};
  loadgen::LoadOptions load_;
  std::string model_;
  std::string endpoint_;
  std::optional<int64_t> num_prompts_;
  std::optional<int64_t> vocab_size_;
  std::optional<int64_t> num_warmups_;
  std::optional<LengthRange> input_;
  std::optional<LengthRange> output_;
  std::string dataset_;
  SamplingFields sampling_;
  std::string extra_body_;
  std::string result_file_;
  bool json_ = false;
};

constexpr const char* kServerGroup = "Server";
constexpr const char* kWorkloadGroup = "Workload";
constexpr const char* kLoadGroup = "Load";
constexpr LengthRange kDefaultLengths = {.low = 100, .high = 1024};
constexpr int64_t kDefaultNumPrompts = 256;

BenchServeCommand::BenchServeCommand(CLI::App& bench)
    : app_(add_command(bench, "serve", "Put a server under load over HTTP", kBenchServeFooter)) {
  add_server_options();
  add_workload_options();
  add_load_options();
  add_flag(*app_, {"--json", "", "Print a JSON object (docs/benchmarking.md)"}, json_);
  add_text(*app_, {"--save-result", "FILE", "Write the JSON object to a file as well"},
           result_file_);
  add_sampling_options(*app_, sampling_, {"n", "seed"});
}

void BenchServeCommand::add_count(const char* option, std::optional<int64_t>& value,
                                  const char* help, const char* group) {
  add_value(*app_, {option, "N", help, group}, [&value, option](const std::string& text) {
    value = parse_positive_count(text, option);
  });
}

void BenchServeCommand::add_number(const char* option, double& value, const char* help,
                                   const char* group) {
  add_value(*app_, {option, "R", help, group}, [&value, option](const std::string& text) {
    value = parse_positive_number(text, option);
  });
}

void BenchServeCommand::add_length(const char* option, std::optional<LengthRange>& range,
                                   const std::string& help) {
  add_value(
      *app_,
      {option, "A:B", fmt::format("{} [{}:{}]", help, kDefaultLengths.low, kDefaultLengths.high),
       kWorkloadGroup},
      [&range, option](const std::string& text) { range = parse_length_range(text, option); });
}

void BenchServeCommand::add_server_options() {
  add_text(*app_,
           {"--base-url", "URL", "Where the server is [http://127.0.0.1:8000]", kServerGroup},
           http_.base_url);
  add_text(*app_,
           {"--api-key", "KEY", "Its API key [OPENAI_API_KEY of the environment]", kServerGroup},
           http_.api_key);
  add_text(*app_,
           {"--model", "NAME", "The model's name there [the first of /v1/models]", kServerGroup},
           model_);
  add_choice(
      *app_, "--endpoint", {kCompletionsPath, kChatPath},
      [this](const std::string& path) { endpoint_ = path; },
      "Where requests go [chat for messages, else completions]", kServerGroup);
  add_flag(*app_, {"--insecure", "", "Take any TLS certificate", kServerGroup}, http_.insecure);
  add_number("--timeout", http_.timeout_s,
             "Seconds that a request may take; inf: any number [21600]", kServerGroup);
  add_text(*app_,
           {"--extra-body", "JSON", "More fields for each request, as a JSON object", kServerGroup},
           extra_body_);
}

void BenchServeCommand::add_workload_options() {
  add_count("--num-prompts", num_prompts_,
            "Requests [256, or the data set's lines]; with --duration, different prompts",
            kWorkloadGroup);
  add_length("--input-len", input_, "Prompt tokens of a request");
  add_length("--output-len", output_, "Output tokens of a request");
  add_count("--vocab-size", vocab_size_,
            "Token ids to draw from, where the server does not tell [10001]", kWorkloadGroup);
  add_text(
      *app_,
      {"--dataset", "FILE", "Prompts of a .jsonl file, instead of random ones", kWorkloadGroup},
      dataset_);
  add_flag(*app_,
           {"--expect-identical", "",
            "Fail requests whose text is not what the same prompt gave before", kWorkloadGroup},
           load_.expect_identical);
  add_seed_option(*app_, load_.schedule.seed, "Seed of the lengths, tokens and arrivals",
                  kWorkloadGroup);
}

void BenchServeCommand::add_load_options() {
  add_number("--request-rate", load_.schedule.request_rate,
             "Requests that arrive a second; inf: all at once [inf]", kLoadGroup);
  add_number("--burstiness", load_.schedule.burstiness,
             "1: a Poisson process; less: in bursts; more: evenly [1]", kLoadGroup);
  add_count("--max-concurrency", load_.schedule.max_concurrency, "Most requests at once [all]",
            kLoadGroup);
  add_number("--duration", load_.schedule.duration_s,
             "Go on for this many seconds, the prompts over and over", kLoadGroup);
  add_count("--warmup,--num-warmups", num_warmups_, "Requests before the measurement [0]",
            kLoadGroup);
  add_flag(*app_,
           {"--retry-429", "", "Send again what the server is too busy for, after its Retry-After",
            kLoadGroup},
           load_.retry_rejected);
}

void BenchServeCommand::check_options() const {
  if (!dataset_.empty() && (input_ || output_)) {
    throw UsageError(
        "--dataset has lengths of its own; --input-len and --output-len go without it");
  }
  if (dataset_.empty() && sampling_.has("max_tokens")) {
    throw UsageError("--max-tokens goes with --dataset; random prompts take --output-len");
  }
  const loadgen::Schedule& schedule = load_.schedule;
  if (std::isfinite(schedule.duration_s) && !schedule.max_concurrency &&
      std::isinf(schedule.request_rate)) {
    throw UsageError(
        "--duration needs --max-concurrency or --request-rate, which say how many requests there "
        "are at a time");
  }
}

RequestFields BenchServeCommand::request_fields(const std::string& model) const {
  RequestFields fields;
  fields.model = model;
  fields.endpoint = endpoint_;
  fields.sampling = sampling_.given();
  if (!extra_body_.empty()) fields.extra_body = parse_json_object(extra_body_, "--extra-body");
  if (dataset_.empty()) {
    if (endpoint_.empty()) fields.endpoint = kCompletionsPath;
    if (!sampling_.has("temperature")) fields.sampling["temperature"] = kBenchTemperature;
    if (!sampling_.has("ignore_eos")) fields.sampling["ignore_eos"] = true;
  }
  return fields;
}

std::vector<LoadRequest> BenchServeCommand::random_requests(
    int64_t count, uint64_t seed, RandomPrompts kind, const loadgen::ServedModel& model) const {
  const int64_t vocab_size =
      vocab_size_ ? *vocab_size_ : model.vocab_size.value_or(kMaxDrawnId + 1);
  const BenchWorkload workload = make_bench_workload(
      count, input_.value_or(kDefaultLengths), output_.value_or(kDefaultLengths), seed, vocab_size);
  return requests_of(workload, kind, request_fields(model.id));
}

LoadReport BenchServeCommand::run_with_progress(const std::vector<LoadRequest>& requests,
                                                const loadgen::LoadOptions& options,
                                                const char* label) const {
  ProgressBar bar(STDERR_FILENO, label);
  if (!bar.visible()) return run_load(requests, options, {});
  const loadgen::Schedule& schedule = options.schedule;
  return run_load(requests, options, [&](const loadgen::LoadProgress& progress) {
    const loadgen::Measurements& measured = progress.measurements;
    const double fraction = schedule.num_requests ? static_cast<double>(measured.ended()) /
                                                        static_cast<double>(*schedule.num_requests)
                                                  : progress.elapsed_s / schedule.duration_s;
    const int64_t without_answer = measured.failed() + measured.rejected();
    bar.update(fraction,
               fmt::format("{} done, {} running{}", measured.completed(), progress.num_running,
                           without_answer > 0 ? fmt::format(", {} failed", without_answer) : ""));
  });
}

void BenchServeCommand::warm_up(const std::vector<LoadRequest>& requests,
                                loadgen::LoadOptions options) const {
  options.schedule = {.num_requests = num_warmups_,
                      .max_concurrency = options.schedule.max_concurrency};
  options.expect_identical = false;
  const LoadReport report = run_with_progress(requests, options, "Warming up");
  if (report.stopped) exit_interrupted();
  if (const std::string failure = failure_sentence(report); !failure.empty()) {
    throw Error("the warm-up failed: " + failure);
  }
}

void BenchServeCommand::save(const Json& json) const {
  std::ofstream file(result_file_, std::ios::binary);
  file << to_line(json) << '\n';
  file.close();
  if (!file) throw Error(fmt::format("cannot write {}", result_file_));
}

BenchServeCommand::Requests BenchServeCommand::make_requests(const loadgen::HttpOptions& http,
                                                             const loadgen::ServedModel& model,
                                                             Terminal& terminal) const {
  if (!dataset_.empty()) {
    std::vector<LoadRequest> lines = read_dataset_file(dataset_, request_fields(model.id));
    std::vector<LoadRequest> warmup;
    if (num_warmups_) warmup = lines;
    return {.measured = std::move(lines), .warmup = std::move(warmup)};
  }
  RandomPrompts kind = RandomPrompts::kTokenIds;
  if (endpoint_ != kChatPath && !loadgen::takes_token_ids(http, model.id)) {
    kind = RandomPrompts::kText;
    terminal.err << "The server takes no token ids: prompts are common words instead.\n";
  }
  const uint64_t seed = load_.schedule.seed;
  return {.measured = random_requests(num_prompts_.value_or(kDefaultNumPrompts), seed, kind, model),
          // Others, so that the measured ones are not in a prefix cache already.
          .warmup = random_requests(num_warmups_.value_or(0), seed + 1, kind, model)};
}

int BenchServeCommand::run(Terminal& terminal) {
  check_options();
  loadgen::HttpOptions http = http_;
  http.base_url = loadgen::checked_base_url(http_.base_url);
  if (http.api_key.empty()) {
    if (const char* key = std::getenv("OPENAI_API_KEY")) http.api_key = key;
  }
  const loadgen::ServedModel model = loadgen::find_served_model(http, model_);
  const auto [requests, warmups] = make_requests(http, model, terminal);

  // Until here an interrupt ends the process as any other.
  const Interrupts interrupts;
  loadgen::LoadOptions options = load_;
  options.http = http;
  options.stop_fd = interrupts.fd();
  if (num_warmups_) warm_up(warmups, options);
  const int64_t num_prompts = num_prompts_.value_or(static_cast<int64_t>(requests.size()));
  if (std::isinf(options.schedule.duration_s)) options.schedule.num_requests = num_prompts;

  const LoadReport report = run_with_progress(requests, options, "Running");
  interrupts.take();  // else it would end the process before the report is out
  const ServeBenchSetup setup{.base_url = http.base_url,
                              .model = model.id,
                              .num_prompts = num_prompts,
                              .schedule = options.schedule};
  const Json json = report_to_json(setup, report);
  if (json_) {
    terminal.out << to_line(json) << '\n';
  } else {
    print_report(setup, report, terminal);
  }
  if (!result_file_.empty()) save(json);
  if (report.stopped) return kExitInterrupted;
  if (const std::string failure = failure_sentence(report); !failure.empty()) {
    throw Error(failure);
  }
  return kExitOk;
}

}  // namespace

std::unique_ptr<Command> make_bench_serve_command(CLI::App& bench) {
  return std::make_unique<BenchServeCommand>(bench);
}

}  // namespace quire::cli
