// quire tune: which of cuBLAS's algorithms multiply a model's matrices fastest on this GPU.
#include "quire/tune.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <ostream>

#include "base/progress.h"
#include "cli/commands/command.h"
#include "cli/json_lines.h"
#include "cli/options/engine_options.h"
#include "cli/options/option_helpers.h"
#include "cli/output_file.h"
#include "cli/terminal/interrupts.h"
#include "cli/terminal/text_format.h"
#include "cli/usage_error.h"
#include "quire/engine_limits.h"

namespace quire::cli {
namespace {

constexpr const char* kTuningGroup = "Tuning";
constexpr const char* kTuneFooter =
    R"(Matrix products of many rows go to cuBLAS, which has several algorithms for each and
chooses one by heuristics. This times those that the heuristics name, on the model's own shapes and
random data, with weights that are read from memory as in a step. Another than cuBLAS's own choice
is taken where it is faster by 2 % at least, agrees with it within rounding, and gives the same bits
each time. Only config.json is read. The GPU should have nothing else to do.

Rows are the tokens of a prompt's step, or the sequences of a decode step. What is found for a
number of rows serves those between it and the next smaller one that was timed, but none below its
half.

Nothing changes by itself: --output writes the choices to a file, and --linear-algorithms, which
every command that loads a model takes, reads it. The file is for this kind of GPU (compute
capability and number of multiprocessors), the model's shapes and its --tensor-parallel-size; one
GPU is enough to tune for several. What it does not name is chosen by quire's own table, or by
cuBLAS. Given with --linear-algorithms here, a file's choices go into the new one, but for the
shapes and rows that are timed anew.

Ctrl-C ends after the shape that is being timed: what was measured is written and printed. Pressed
again, it ends at once and writes nothing.

Columns: time of cuBLAS's own choice, time of the best, the share that this saves, and how near the
best comes to what the GPU was measured to do at most: TFLOP/s in a product of 8192 cubed, or TB/s
in a copy, whichever bounds the shape.

Examples:
  quire tune ~/models/Qwen3-0.6B
  quire tune ~/models/Qwen3-8B --output tuned.json
  quire serve ~/models/Qwen3-8B --linear-algorithms tuned.json
  quire tune ~/models/Qwen3-0.6B --linear-algorithms tuned.json --output tuned.json
  quire tune ~/models/Qwen3-8B --tensor-parallel-size 4 --rows 64,128,256,16K --json)";

std::vector<int64_t> parse_rows(const std::string& text) {
  std::vector<int64_t> rows;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find(',', begin), text.size());
    rows.push_back(parse_count(text.substr(begin, end - begin), "--rows"));
    if (rows.back() < 1 || rows.back() > kMaxNumBatchedTokens) {
      throw UsageError(
          fmt::format("--rows: expected 1 to {}, got {}", kMaxNumBatchedTokens, rows.back()));
    }
    begin = end + 1;
  }
  return rows;
}

std::string rows_text(const std::vector<int64_t>& rows) {
  std::string text;
  for (const int64_t value : rows) text += (text.empty() ? "" : ",") + std::to_string(value);
  return text;
}

// How near a product's best time comes to what the GPU does at most.
struct Share {
  double value = 0;
  bool by_memory = false;  // else by arithmetic
};

Share share_of_limit(const TunedProduct& product, const TuneResult& result) {
  const double reading = product.bytes / result.copy_bytes_per_s;
  const double computing = product.flops / result.peak_flops_per_s;
  return {std::max(reading, computing) / product.best_s, reading > computing};
}

double saved_share(const TunedProduct& product) {
  return 1 - product.best_s / product.first_s;
}

Json to_json(const TuneResult& result) {
  Json json;
  json["device_name"] = result.device_name;
  json["compute_capability"] = result.compute_capability;
  json["num_multiprocessors"] = result.num_multiprocessors;
  json["peak_tflops"] = 1e-12 * result.peak_flops_per_s;
  json["copy_tb_s"] = 1e-12 * result.copy_bytes_per_s;
  json["is_complete"] = result.is_complete;
  json["products"] = Json::array();
  for (const TunedProduct& product : result.products) {
    const Share share = share_of_limit(product, result);
    json["products"].push_back({{"name", product.name},
                                {"n", product.n},
                                {"k", product.k},
                                {"rows", product.rows},
                                {"dtype", product.dtype},
                                {"out_dtype", product.out_dtype},
                                {"num_algorithms", product.num_algorithms},
                                {"choice", product.choice},
                                {"first_us", 1e6 * product.first_s},
                                {"best_us", 1e6 * product.best_s},
                                {"saved", saved_share(product)},
                                {"limit", share.by_memory ? "memory" : "arithmetic"},
                                {"share_of_limit", share.value}});
  }
  return json;
}

void print_table(const TuneResult& result, Terminal& terminal) {
  std::ostream& out = terminal.out;
  out << styled(printable_line(result.device_name), Style::kBold, terminal.out_colours) << '\n';
  out << fmt::format(
      "  compute capability {}.{}, {} multiprocessors; at most {:.1f} TFLOP/s and {:.2f} "
      "TB/s\n\n",
      result.compute_capability / 10, result.compute_capability % 10, result.num_multiprocessors,
      1e-12 * result.peak_flops_per_s, 1e-12 * result.copy_bytes_per_s);
  using Align = Table::Align;
  Table table({Align::kLeft, Align::kRight, Align::kRight, Align::kRight, Align::kRight,
               Align::kRight, Align::kRight, Align::kLeft});
  table.add({"product", "n x k", "rows", "cuBLAS's", "best", "saved", "", "of the limit"});
  int64_t num_changed = 0;
  for (const TunedProduct& product : result.products) {
    const Share share = share_of_limit(product, result);
    if (product.choice != 0) ++num_changed;
    table.add({product.name, fmt::format("{} x {}", product.n, product.k),
               with_commas(product.rows), fmt::format("{:.1f} us", 1e6 * product.first_s),
               fmt::format("{:.1f} us", 1e6 * product.best_s),
               product.choice == 0 ? "-" : fmt::format("{:.1f} %", 100 * saved_share(product)),
               fmt::format("{:.0f} %", 100 * share.value), share.by_memory ? "TB/s" : "TFLOP/s"});
  }
  out << table.str()
      << fmt::format("\n{} of {} shapes have a faster algorithm than cuBLAS's own choice.\n",
                     num_changed, result.products.size());
}

// The bar of a measurement, and what Ctrl-C does to it. Thread safety: all functions from any
// thread.
class Progress {
 public:
  explicit Progress(Terminal& terminal) : terminal_(terminal), bar_(STDERR_FILENO, "Timing") {}

  // False where the measurement is to end.
  bool update(double fraction, std::string_view next) {
    const std::lock_guard lock(mutex_);
    if (!is_interrupted_) bar_.update(fraction, next);
    return !is_interrupted_;
  }

  void clear() {
    const std::lock_guard lock(mutex_);
    bar_.clear();
  }

  // A second Ctrl-C does not wait for the measurement to end.
  void interrupt() {
    const std::lock_guard lock(mutex_);
    bar_.clear();
    if (is_interrupted_) exit_interrupted();
    is_interrupted_ = true;
    if (!terminal_.err_is_terminal) return;
    terminal_.err << "quire: ends after this shape; Ctrl-C again ends at once" << std::endl;
  }

 private:
  std::mutex mutex_;
  Terminal& terminal_;
  ProgressBar bar_;
  bool is_interrupted_ = false;
};

class TuneCommand : public Command {
 public:
  explicit TuneCommand(CLI::App& root);
  const CLI::App& app() const override { return *app_; }
  int run(Terminal& terminal) override;

 private:
  void add_count_option(const char* option, int& value, int most, const std::string& help);
  TuneResult measure(Progress& progress) const;
  void report(const TuneResult& result, Terminal& terminal) const;

  CLI::App* app_;
  EngineConfig config_;
  TuneOptions options_;
  std::string output_;
  bool json_ = false;
};

TuneCommand::TuneCommand(CLI::App& root)
    : app_(add_command(root, "tune", "Find the fastest matrix products for a model on this GPU",
                       kTuneFooter)) {
  add_value(*app_,
            {"--rows", "N,...",
             fmt::format("Numbers of rows to tune for; those that a step cannot have are left out "
                         "[{}, and on to the most that a step can have]",
                         rows_text(default_tune_rows())),
             kTuningGroup},
            [this](const std::string& text) { options_.rows = parse_rows(text); });
  add_count_option("--algorithms", options_.max_algorithms, kMaxTunedAlgorithms,
                   "Algorithms to time for a shape, of those that cuBLAS names first");
  add_count_option("--repeats", options_.repeats, kMaxTuneRepeats,
                   "Measurements of each; the median counts");
  add_text(
      *app_,
      {"--output", "FILE", "Write the choices to this file, for --linear-algorithms", kTuningGroup},
      output_, [](const std::string& text) -> std::string {
        return text.empty() ? "expected a file, got an empty text" : "";
      });
  add_flag(*app_, {"--json", "", "Print a JSON object"}, json_);
  add_engine_options(*app_, config_, /*seed_is_taken=*/false);
}

void TuneCommand::add_count_option(const char* option, int& value, int most,
                                   const std::string& help) {
  add_value(*app_, {option, "N", fmt::format("{} [{}]", help, value), kTuningGroup},
            [&value, option, most](const std::string& text) {
              const int64_t count = parse_count(text, option);
              if (count < 1 || count > most) {
                throw UsageError(fmt::format("{}: expected 1 to {}, got {}", option, most, count));
              }
              value = static_cast<int>(count);
            });
}

TuneResult TuneCommand::measure(Progress& progress) const {
  EngineConfig config = config_;
  config.model = model_folder(config.model);
  const auto on_progress = [&](int64_t num_done, int64_t num_all, std::string_view next) {
    return progress.update(static_cast<double>(num_done) / static_cast<double>(num_all), next);
  };
  TuneResult result = tune(config, options_, on_progress);
  progress.clear();
  return result;
}

void TuneCommand::report(const TuneResult& result, Terminal& terminal) const {
  if (json_) {
    terminal.out << to_line(to_json(result)) << '\n';
  } else {
    print_table(result, terminal);
    if (output_.empty() && terminal.err_is_terminal) {
      terminal.err << styled("--output FILE keeps the choices, for --linear-algorithms\n",
                             Style::kDim, terminal.err_colours);
    }
  }
}

int TuneCommand::run(Terminal& terminal) {
  if (config_.device == "cpu") {
    throw UsageError("--device cpu: matrix products are timed on a GPU");
  }
  const Interrupts interrupts;
  Progress progress(terminal);
  const InterruptHandler handler(interrupts, [&] { progress.interrupt(); });
  std::optional<OutputFile> file;
  if (!output_.empty()) file.emplace(output_, "--output");
  const TuneResult result = measure(progress);
  if (result.products.empty()) {
    terminal.err << "quire: interrupted before anything was measured\n";
    return kExitInterrupted;
  }
  // Before the report: writing that fails where standard output's reader is gone.
  if (file) file->write(result.file);
  report(result, terminal);
  return result.is_complete ? kExitOk : kExitInterrupted;
}

}  // namespace

std::unique_ptr<Command> make_tune_command(CLI::App& root) {
  return std::make_unique<TuneCommand>(root);
}

}  // namespace quire::cli
