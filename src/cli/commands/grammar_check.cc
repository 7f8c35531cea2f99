// quire grammar check: which texts a schema, a regular expression, a grammar or a choice accepts.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <istream>
#include <optional>
#include <ostream>

#include "base/thread_pool.h"
#include "cli/commands/command.h"
#include "cli/grammar_check.h"
#include "cli/json_lines.h"
#include "cli/options/engine_options.h"
#include "cli/options/option_helpers.h"
#include "cli/terminal/text_format.h"
#include "cli/usage_error.h"
#include "hub/model_path.h"
#include "quire/engine_config.h"

namespace quire::cli {
namespace {

constexpr const char* kGrammarCheckFooter =
    R"(Reads JSON lines with one constraint and texts:
  {"json_schema": {...}, "texts": ["...", ...]}   texts that are JSON which the schema describes
  {"regex": "...", "texts": [...]}                texts that the expression matches as a whole
  {"grammar": "root ::= ...", "texts": [...]}     texts of a grammar in GBNF, Lark's notation or EBNF
  {"choice": ["...", ...], "texts": [...]}        texts that are one of these
and prints which texts are accepted. Given a model, it also prints which texts could be generated,
token by token as the model's tokenizer cuts them, and how long the masks of allowed tokens took; the
model needs no weights for this. JSON is generated with a bounded amount of white space
(--structured-whitespace), so a text with more is accepted and not generated. A constraint that cannot be enforced exactly is refused with a
sentence that names the keyword by its JSON pointer. With --json each line is
  {"compiled": true, "compile_ms": 0.1, "accepted": [true, ...]}   or   {"compiled": false, "error": "..."}
and with a model, behind "accepted", "generated": [true, ...] and "mask_us": {"mean", "p99", "max"}.
Lines are compiled in parallel. JSON may have white space between its tokens and members in any order.

The exit code is 0 once every line is answered, compiled or not.

Examples:
  echo '{"regex": "[a-z]+", "texts": ["abc", "ABC"]}' | quire grammar check
  quire grammar check ~/models/Qwen3-0.6B --file schemas.jsonl --json
  quire grammar check --file schemas.jsonl --json | jq -r 'select(.compiled | not) | .error')";

// So many lines are held at once.
constexpr size_t kLinesAtOnce = 256;

class GrammarCheckCommand : public Command {
 public:
  explicit GrammarCheckCommand(CLI::App& grammar)
      : app_(add_command(grammar, "check",
                         "Say which texts a schema, regex, grammar or choice accepts",
                         kGrammarCheckFooter)) {
    add_text(
        *app_,
        {"MODEL", "",
         "Also check the masks of this model's tokens: a folder with a tokenizer, a .gguf file "
         "or a name in the local Hugging Face cache"},
        model_);
    add_text(*app_, {"--file", "FILE", "Read this file instead of standard input"}, file_);
    add_flag(*app_, {"--json", "", "Print a JSON object a line"}, json_);
    add_flag(*app_,
             {"--masks", "",
              "With MODEL and --json: print the masks, too, a bit a token in hexadecimal"},
             keeps_masks_);
    add_flag(*app_,
             {"--no-formats", "", "Treat \"format\" as an annotation, as JSON Schema allows"},
             no_formats_);
    add_white_space_option(*app_, white_space_);
  }

  const CLI::App& app() const override { return *app_; }
  int run(Terminal& terminal) override;

 private:
  struct NumberedLine {
    size_t number = 0;
    std::string text;
  };
  // Checks some lines side by side and prints them in order.
  void check_lines(const std::vector<NumberedLine>& lines, const std::string& name,
                   ThreadPool& threads, Terminal& terminal);
  void print(const GrammarCheck& check, size_t number, Terminal& terminal) const;

  CLI::App* app_;
  std::string model_;
  std::optional<MaskChecker> masks_;  // of the model, if one is named
  std::string file_;
  bool json_ = false;
  bool keeps_masks_ = false;
  bool no_formats_ = false;
  std::string white_space_ = EngineConfig().structured_whitespace;
};

int GrammarCheckCommand::run(Terminal& terminal) {
  if (keeps_masks_ && (model_.empty() || !json_)) {
    throw UsageError("--masks needs MODEL and --json");
  }
  if (!model_.empty()) masks_.emplace(resolve_model(model_));
  std::ifstream file;
  if (!file_.empty()) file = open_lines(file_);
  std::istream& in = file_.empty() ? terminal.in : file;
  const std::string name = file_.empty() ? "standard input" : file_;
  ThreadPool threads(cpu_topology().num_physical_cores);
  const size_t at_once = terminal.in_is_terminal && file_.empty() ? 1 : kLinesAtOnce;
  bool has_ended = false;
  for (size_t number = 1; !has_ended;) {
    std::vector<NumberedLine> lines;
    while (lines.size() < at_once && !has_ended) {
      std::optional<std::string> line = read_line(in, fmt::format("{} line {}", name, number));
      has_ended = !line;
      if (line) lines.push_back({number++, std::move(*line)});
    }
    check_lines(lines, name, threads, terminal);
  }
  return kExitOk;
}

void GrammarCheckCommand::check_lines(const std::vector<NumberedLine>& lines,
                                      const std::string& name, ThreadPool& threads,
                                      Terminal& terminal) {
  grammar::CompileLimits limits;
  limits.assert_formats = !no_formats_;
  const grammar::GenerationOptions generation{.white_space =
                                                  grammar::parse_white_space(white_space_)};
  std::vector<GrammarCheck> checks(lines.size());
  threads.parallel_for(static_cast<int64_t>(lines.size()), [&](int64_t task, int) {
    const auto i = static_cast<size_t>(task);
    checks[i] = check_grammar_line(lines[i].text, fmt::format("{} line {}", name, lines[i].number),
                                   limits, masks_ ? &*masks_ : nullptr, generation, keeps_masks_);
  });
  for (size_t i = 0; i < lines.size(); ++i) print(checks[i], lines[i].number, terminal);
  flush(terminal);
}

void GrammarCheckCommand::print(const GrammarCheck& check, size_t number,
                                Terminal& terminal) const {
  if (json_) {
    terminal.out << to_json_line(check) << '\n';
    return;
  }
  terminal.out << styled(fmt::format("line {}", number), Style::kBold, terminal.out_colours);
  if (check.error) {
    terminal.out << "  " << styled("refused", Style::kRed, terminal.out_colours) << "  "
                 << printable_line(*check.error) << '\n';
    return;
  }
  terminal.out << fmt::format("  compiled in {:.2f} ms\n", check.compile_ms);
  Table table({Table::Align::kLeft, Table::Align::kLeft});
  for (size_t i = 0; i < check.accepted.size(); ++i) {
    std::string verdict = check.accepted[i] ? "accepted" : "rejected";
    if (check.has_masks && check.masked[i].is_generated != check.accepted[i]) {
      verdict += check.masked[i].is_generated ? ", could be generated" : ", could not be generated";
    }
    table.add({fmt::format("text {}", i + 1), verdict});
  }
  if (!check.accepted.empty()) terminal.out << table.str();
  if (const std::optional<MaskTimes> times = mask_times(check)) {
    terminal.out << fmt::format("masks: mean {:.1f} us, p99 {:.1f} us, longest {:.1f} us\n",
                                times->mean, times->p99, times->max);
  }
}

}  // namespace

std::unique_ptr<Command> make_grammar_check_command(CLI::App& grammar) {
  return std::make_unique<GrammarCheckCommand>(grammar);
}

}  // namespace quire::cli
