// quire merge: writes a model with a LoRA adapter merged into its weights.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <ostream>

#include "base/progress.h"
#include "cli/commands/command.h"
#include "cli/json_lines.h"
#include "cli/options/engine_options.h"
#include "cli/options/option_helpers.h"
#include "cli/terminal/orderly_stop.h"
#include "cli/terminal/text_format.h"
#include "cli/usage_error.h"
#include "quire/merge.h"

namespace quire::cli {
namespace {

constexpr const char* kMergeFooter =
    R"(ADAPTER is a folder that PEFT has saved: LoRA, rsLoRA or DoRA, with its trained copies and biases. 'quire inspect
ADAPTER' shows what it holds and which model it is for. OUT becomes a folder like any other model's, which quire and
transformers load. Weights keep the types of MODEL; each number is computed in float32 and rounded once. A tied output
layer becomes a tensor of its own where it no longer equals the embedding.

MODEL is a dense model: merge before you quantise. Tokenizer, chat templates and generation config are those of MODEL;
the files that are not copied, of MODEL's folder and of ADAPTER's, are listed at the end.

OUT appears when all of it is written. Until then the files are in OUT.NUMBER.partial beside it or, where OUT is an
empty folder, in OUT/merged.NUMBER.partial. Ctrl-C, SIGTERM and SIGHUP remove that. A second one ends at once.

Examples:
  quire merge Qwen/Qwen3-0.6B ./my-adapter qwen3-mine
  quire merge ~/models/Qwen3-8B ./my-adapter qwen3-mine --json
  quire chat ./qwen3-mine
  quire quantize ./qwen3-mine qwen3-mine-int4)";

Json to_json(const MergeResult& result) {
  return {{"model", result.model.string()},
          {"adapter", result.adapter.string()},
          {"out", result.out.string()},
          {"kind", result.kind},
          {"merged_tensors", result.num_merged},
          {"untied", result.untied},
          {"bytes", result.bytes},
          {"left_out", result.left_out},
          {"adapter_left_out", result.adapter_left_out}};
}

class MergeCommand : public Command {
 public:
  explicit MergeCommand(CLI::App& root);
  const CLI::App& app() const override { return *app_; }
  int run(Terminal& terminal) override;

 private:
  std::optional<MergeResult> merge_until(const OrderlyStop& stop);
  static void print_result(const MergeResult& result, Terminal& terminal);

  CLI::App* app_;
  MergeOptions options_;
  std::string out_;
  bool json_ = false;
};

MergeCommand::MergeCommand(CLI::App& root)
    : app_(add_command(root, "merge", "Write a model with a LoRA adapter merged into its weights",
                       kMergeFooter)) {
  add_text(*app_,
           {.name = "MODEL",
            .placeholder = "TEXT",
            .help = "The base model's folder, or its name in the local Hugging Face cache",
            .is_required = true},
           options_.model);
  add_text(*app_,
           {.name = "ADAPTER",
            .placeholder = "TEXT",
            .help = "The adapter's folder",
            .is_required = true},
           options_.adapter);
  add_text(*app_,
           {.name = "OUT",
            .placeholder = "TEXT",
            .help = "The folder to write: a new or an empty one",
            .is_required = true},
           out_);
  add_threads_option(*app_, options_.threads);
  add_flag(*app_, {"--json", "", "Print a JSON object"}, json_);
}

std::optional<MergeResult> MergeCommand::merge_until(const OrderlyStop& stop) {
  ProgressBar bar(STDERR_FILENO, "Merging");
  options_.on_progress = [&](int64_t done, int64_t total) {
    bar.update(static_cast<double>(done) / static_cast<double>(total),
               fmt::format("{} of {}", format_bytes(done), format_bytes(total)));
    return !stop.is_asked();
  };
  return merge_lora(options_);
}

void MergeCommand::print_result(const MergeResult& result, Terminal& terminal) {
  terminal.out << styled(printable_line(result.out.string()), Style::kBold, terminal.out_colours)
               << '\n';
  Table table({Table::Align::kLeft, Table::Align::kLeft});
  table.add({"weights", fmt::format("{}: {} tensor{} changed", result.kind, result.num_merged,
                                    result.num_merged == 1 ? "" : "s")});
  table.add({"size", format_bytes(result.bytes)});
  if (result.untied) table.add({"untied", "the output layer is a tensor of its own now"});
  const auto add_files = [&](const char* name, const std::vector<std::string>& files) {
    if (!files.empty())
      table.add({name, printable_line(fmt::format("{}", fmt::join(files, ", ")))});
  };
  add_files("left out", result.left_out);
  add_files("of the adapter", result.adapter_left_out);
  terminal.out << table.str() << "Next: quire chat " << printable_line(result.out.string()) << '\n';
}

int MergeCommand::run(Terminal& terminal) {
  options_.model = model_folder(options_.model);
  options_.out = out_;
  const OrderlyStop stop;
  const std::optional<MergeResult> result = merge_until(stop);
  if (!result) {
    terminal.err << "quire: interrupted; nothing is left of " << printable_line(out_) << std::endl;
    return stop.exit_code();
  }
  if (json_) {
    terminal.out << to_line(to_json(*result)) << '\n';
  } else {
    print_result(*result, terminal);
  }
  return kExitOk;
}

}  // namespace

std::unique_ptr<Command> make_merge_command(CLI::App& root) {
  return std::make_unique<MergeCommand>(root);
}

}  // namespace quire::cli
