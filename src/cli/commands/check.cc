// quire check: whether a model is fit to be served.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <ostream>

#include "cli/commands/command.h"
#include "cli/json_lines.h"
#include "cli/loading.h"
#include "cli/model_reference.h"
#include "cli/options/engine_options.h"
#include "cli/options/option_helpers.h"
#include "cli/output_file.h"
#include "cli/terminal/text_format.h"
#include "cli/usage_error.h"
#include "quire/model_check.h"

namespace quire::cli {
namespace {

constexpr const char* kCheckFooter =
    R"(Before a model is served: every tensor is read once, and one with NaN or infinite values, with nothing but
zeros (a bias may be zero) or with values beyond 10,000 is a problem. The tokenizer must have a row of the
embedding for each id and the special tokens that the files name; the chat template must render a known
conversation and write only markers that are tokens. Then the model answers a known prompt with 16 greedy tokens,
on the CPU, which also finds tensors that are missing or have other shapes than config.json says.

--write-reference FILE keeps that answer, with its log-probabilities, where no problem was found;
--reference FILE compares with it: the prompt's ids, the tokens, and each token's log-probability within the
file's "tolerance" (0.01, which other processors keep to). Write it once where the model is known to be right, and
keep it beside the model.

The exit code is 0 where nothing is wrong, 1 where something is, 2 for wrong usage.

Examples:
  quire check
  quire check ~/models/Qwen3-0.6B --write-reference qwen3.json
  quire check /mnt/copy/Qwen3-0.6B --reference qwen3.json
  quire check ~/models/Qwen3-0.6B --json | jq .problems)";

Json tensor_to_json(const CheckedTensor& tensor) {
  Json json = {{"name", tensor.info.name},
               {"dtype", tensor.info.dtype},
               {"shape", tensor.info.shape},
               {"file", tensor.info.file}};
  if (!tensor.is_floating) return json;
  json["num_values"] = tensor.num_values;
  json["num_nan"] = tensor.num_nan;
  json["num_infinite"] = tensor.num_infinite;
  json["num_zero"] = tensor.num_zero;
  json["min"] = tensor.min;
  json["max"] = tensor.max;
  return json;
}

Json answer_to_json(const KnownAnswer& answer) {
  return {{"prompt", answer.prompt},
          {"prompt_token_ids", answer.prompt_token_ids},
          {"output_token_ids", answer.output_token_ids},
          {"logprobs", answer.logprobs}};
}

Json check_to_json(const ModelCheck& check) {
  Json json;
  json["folder"] = check.folder;
  json["ok"] = check.problems.empty();
  json["problems"] = Json::array();
  for (const ModelProblem& problem : check.problems) {
    json["problems"].push_back({{"part", problem.part}, {"message", problem.message}});
  }
  json["vocab_size"] = check.vocab_size;
  json["tokenizer_vocab_size"] = check.tokenizer_vocab_size;
  json["has_chat_template"] = check.has_chat_template;
  json["answer"] = check.answer ? answer_to_json(*check.answer) : Json(nullptr);
  json["tensors"] = Json::array();
  for (const CheckedTensor& tensor : check.tensors) {
    json["tensors"].push_back(tensor_to_json(tensor));
  }
  return json;
}

class CheckCommand : public Command {
 public:
  explicit CheckCommand(CLI::App& root);
  const CLI::App& app() const override { return *app_; }
  int run(Terminal& terminal) override;

 private:
  void print_report(const ModelCheck& check, Terminal& terminal) const;
  std::string outcome_of(const ModelCheck& check, std::string_view part,
                         const std::string& if_good) const;

  CLI::App* app_;
  EngineConfig config_;
  std::string reference_;
  std::string write_reference_;
  bool json_ = false;
};

CheckCommand::CheckCommand(CLI::App& root)
    : app_(add_command(root, "check", "Find what is wrong with a model before it is served",
                       kCheckFooter)) {
  add_model_argument(*app_, config_.model);
  add_text(*app_, {"--reference", "FILE", "Compare with what --write-reference kept"}, reference_);
  add_text(*app_,
           {"--write-reference", "FILE",
            "Keep the answer to the known prompt, where no problem is found"},
           write_reference_);
  add_flag(*app_, {"--json", "", "Print a JSON object, with the figures of every tensor"}, json_);
}

std::string CheckCommand::outcome_of(const ModelCheck& check, std::string_view part,
                                     const std::string& if_good) const {
  const auto count = std::ranges::count(check.problems, part, &ModelProblem::part);
  if (count == 0) return if_good;
  return count == 1 ? "1 problem" : fmt::format("{} problems", count);
}

void CheckCommand::print_report(const ModelCheck& check, Terminal& terminal) const {
  terminal.out << styled(printable_line(check.folder), Style::kBold, terminal.out_colours) << '\n';
  Table table({Table::Align::kLeft, Table::Align::kLeft});
  const bool has_config = check.vocab_size != 0;
  if (!has_config) table.add({"config", outcome_of(check, "config", "read")});
  const std::string none = has_config ? "none" : "not tried";
  table.add({"weights",
             outcome_of(check, "weights",
                        check.tensors.empty() ? "not tried"
                                              : fmt::format("{} tensors, {}: all values are sound",
                                                            with_commas(std::ssize(check.tensors)),
                                                            format_bytes(check.weight_bytes)))});
  table.add({"tokenizer", outcome_of(check, "tokenizer",
                                     check.tokenizer_vocab_size == 0
                                         ? none
                                         : fmt::format("{} tokens; the model has {}",
                                                       with_commas(check.tokenizer_vocab_size),
                                                       with_commas(check.vocab_size)))});
  table.add(
      {"chat template", outcome_of(check, "chat template",
                                   check.has_chat_template ? "renders a conversation" : none)});
  table.add({"run", outcome_of(check, "run",
                               check.answer ? fmt::format("{} tokens on the CPU",
                                                          check.answer->output_token_ids.size())
                                            : "not tried")});
  if (!reference_.empty()) table.add({"reference", outcome_of(check, "reference", "the same")});
  terminal.out << table.str();
  for (const ModelProblem& problem : check.problems) {
    terminal.out << '\n'
                 << styled(problem.part + ": ", Style::kRed, terminal.out_colours)
                 << printable_line(problem.message);
  }
  terminal.out << (check.problems.empty() ? "No problem was found.\n" : "\n");
}

int CheckCommand::run(Terminal& terminal) {
  if (!reference_.empty() && !write_reference_.empty()) {
    throw UsageError("--write-reference: give either this or --reference");
  }
  std::optional<ModelReference> reference;
  if (!reference_.empty()) reference = read_reference(reference_);
  std::optional<OutputFile> file;
  if (!write_reference_.empty()) file.emplace(write_reference_, "--write-reference");

  const ModelCheck check = check_model(ready_to_load(config_, terminal), reference);
  if (json_) {
    terminal.out << to_line(check_to_json(check)) << '\n';
  } else {
    print_report(check, terminal);
  }
  flush(terminal);
  if (!check.problems.empty()) return kExitFailure;
  if (file) {
    file->write(to_reference_text({.answer = *check.answer, .tolerance = kReferenceTolerance}));
  }
  return kExitOk;
}

}  // namespace

std::unique_ptr<Command> make_check_command(CLI::App& root) {
  return std::make_unique<CheckCommand>(root);
}

}  // namespace quire::cli
