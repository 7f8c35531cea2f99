// quire perplexity: how well a model predicts a text.
#include <fmt/format.h>
#include <unistd.h>

#include <ostream>

#include "base/progress.h"
#include "cli/commands/command.h"
#include "cli/json_lines.h"
#include "cli/loading.h"
#include "cli/options/engine_options.h"
#include "cli/options/option_helpers.h"
#include "cli/terminal/orderly_stop.h"
#include "cli/terminal/text_format.h"
#include "cli/usage_error.h"
#include "quire/perplexity.h"

namespace quire::cli {
namespace {

constexpr const char* kPerplexityFooter =
    R"(The perplexity of a text is the exponential of the mean negative log-probability that the model gives its
tokens. A lower figure is better. Compare models with the same tokenizer, on the same text that they were not trained
on, with the same --context and --stride. The difference is what quantising costs.

A text is cut into windows of --context tokens that begin --stride tokens apart. Each token but the first is scored
once, with at least context - stride tokens before it, or as many as the text has. A shorter stride takes longer and
gives lower figures. The standard error assumes that tokens are independent. Two models' figures for one text differ
less by chance than it says.

In a FILE.jsonl each line is a text: {"text": "..."}. Special tokens may be written out (<|im_start|>), so that a file
may hold chats.

Examples:
  quire perplexity ~/models/Qwen3-0.6B --file wiki.test.txt
  quire perplexity ./qwen3-int4 --file wiki.test.txt --context 2048
  quire perplexity ~/models/Qwen3-0.6B --quantization int4 --file wiki.test.txt --json)";

std::string figure(double value) {
  constexpr double kMostInFull = 1e9;
  return value < kMostInFull ? fmt::format("{:.4f}", value) : fmt::format("{:.3e}", value);
}

class PerplexityCommand : public Command {
 public:
  explicit PerplexityCommand(CLI::App& root);
  const CLI::App& app() const override { return *app_; }
  int run(Terminal& terminal) override;

 private:
  // Of `least` or more.
  void add_count(const char* option, const std::string& help, int64_t least,
                 std::optional<int64_t>& value);
  std::optional<PerplexityResult> measure(const Terminal& terminal, OrderlyStop& stop);
  void report(const PerplexityResult& result, Terminal& terminal) const;

  CLI::App* app_;
  PerplexityOptions options_;
  std::string file_;
  bool json_ = false;
};

PerplexityCommand::PerplexityCommand(CLI::App& root)
    : app_(add_command(root, "perplexity", "Measure how well a model predicts a text",
                       kPerplexityFooter)) {
  add_text(*app_,
           {.name = "--file",
            .placeholder = "FILE",
            .help = "The text, or texts in a .jsonl file",
            .is_required = true},
           file_);
  add_count("--context", "Tokens that the model sees at a time [1024, or what it can do]", 2,
            options_.context);
  add_count("--stride", "Tokens from one window to the next [half of the context]", 1,
            options_.stride);
  add_flag(*app_, {"--json", "", "Print a JSON object"}, json_);
  add_engine_options(*app_, options_.engine, /*seed_is_taken=*/false);
}

void PerplexityCommand::add_count(const char* option, const std::string& help, int64_t least,
                                  std::optional<int64_t>& value) {
  add_value(*app_, {option, "N", help}, [option, least, &value](const std::string& text) {
    const int64_t count = parse_count(text, option);
    if (count < least) {
      throw UsageError(fmt::format("{}: expected {} or more, got {}", option, least, count));
    }
    value = count;
  });
}

std::optional<PerplexityResult> PerplexityCommand::measure(const Terminal& terminal,
                                                           OrderlyStop& stop) {
  options_.engine = ready_to_load(options_.engine, terminal);
  ProgressBar bar(STDERR_FILENO, "Reading");
  options_.on_window = [&](int64_t done, int64_t total) {
    stop.begin();  // loading the model cannot be stopped half-way
    bar.update(static_cast<double>(done) / static_cast<double>(total),
               fmt::format("{} of {} windows", with_commas(done), with_commas(total)));
    return !stop.is_asked();
  };
  return measure_perplexity(options_);
}

void PerplexityCommand::report(const PerplexityResult& result, Terminal& terminal) const {
  if (json_) {
    const Json json = {{"model", options_.engine.model},
                       {"file", file_},
                       {"texts", result.num_texts},
                       {"tokens", result.num_tokens},
                       {"scored_tokens", result.num_scored},
                       {"context", result.context},
                       {"stride", result.stride},
                       {"windows", result.num_windows},
                       {"mean_logprob", result.mean_logprob},
                       {"perplexity", result.perplexity},
                       {"standard_error", result.standard_error}};
    terminal.out << to_line(json) << '\n';
    return;
  }
  // One token tells nothing of how far they differ.
  const std::string error = result.num_scored > 1 ? " +- " + figure(result.standard_error) : "";
  terminal.out << fmt::format(
      "{}\n  {} tokens, context {}, stride {}\n",
      styled(fmt::format("perplexity {}{}", figure(result.perplexity), error), Style::kBold,
             terminal.out_colours),
      with_commas(result.num_tokens), with_commas(result.context), with_commas(result.stride));
}

int PerplexityCommand::run(Terminal& terminal) {
  options_.text = file_;
  OrderlyStop stop(OrderlyStop::Starts::kWithBegin);
  const std::optional<PerplexityResult> result = measure(terminal, stop);
  if (!result) {
    terminal.err << "quire: interrupted" << std::endl;
    return stop.exit_code();
  }
  report(*result, terminal);
  return kExitOk;
}

}  // namespace

std::unique_ptr<Command> make_perplexity_command(CLI::App& root) {
  return std::make_unique<PerplexityCommand>(root);
}

}  // namespace quire::cli
