// quire quantize: writes a model with its weights rounded.
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
#include "quire/quantize.h"

namespace quire::cli {
namespace {

constexpr const char* kQuantizeFooter =
    R"(OUT becomes a folder like any other model's, in compressed-tensors' formats pack-quantized and float-quantized,
which quire and transformers load; vLLM reads these formats, too, but was not tried. The matrices of the decoder's
layers are rounded; the embedding, the output layer, norms and biases stay as they are. Tokenizer, chat templates and
generation config are copied, or made of what a GGUF file holds of them; the other files that are not copied are
listed at the end.

  int8   integers with a scale for each group of inputs: half of bfloat16's size, with very small errors
  int4   a little more than a quarter of bfloat16's size; --calibrate makes the errors smaller
  fp8    float8 with a scale for each output, for GPUs; half of bfloat16's size

--output-layer rounds the output layer, too. In small models it is a large part of what is read for each token; where
it is one with the embedding, as in these, both become integers: quire loads that, other programs were not tried.

--calibrate FILE takes a text like those that the model will be used for. It runs through the model layer by layer,
and the weights that are rounded later make up for the errors of those before them (GPTQ). In a FILE.jsonl each line
is a text: {"text": "..."}. Special tokens may be written out (<|im_end|>). 'quire perplexity' measures what a model
has lost.

--kv-scales measures, by the same text, the largest keys and values of each layer, and writes k_scale and v_scale with
which twice as large ones fit into float8, for 'quire serve OUT --kv-cache-dtype fp8'. They have the names that vLLM
reads.

OUT appears when all of it is written. Until then the files are in OUT.NUMBER.partial beside it or, where OUT is an
empty folder, in OUT/quantized.NUMBER.partial. Ctrl-C, SIGTERM and SIGHUP remove that. A second one ends at once.
One matrix is in memory at a time; with --calibrate one layer, and the states of the text's tokens.

Examples:
  quire quantize Qwen/Qwen3-0.6B qwen3-int8 --scheme int8
  quire quantize ~/models/Qwen3-8B qwen3-int4 --scheme int4 --calibrate wiki.txt
  quire quantize ~/models/Qwen3-8B qwen3-fp8 --scheme fp8 --calibrate wiki.txt --kv-scales
  quire quantize Qwen/Qwen3-0.6B-GGUF:Q8_0 qwen3-int4 --output-layer int8
  quire chat ./qwen3-int4)";

Json to_json(const QuantizeResult& result) {
  return {{"model", result.model.string()},
          {"out", result.out.string()},
          {"scheme", result.scheme},
          {"quantized_layers", result.num_quantized},
          {"kept_layers", result.kept},
          {"bytes_before", result.bytes_before},
          {"bytes_after", result.bytes_after},
          {"left_out", result.left_out},
          {"output_scheme", result.output_scheme.empty() ? Json() : Json(result.output_scheme)},
          {"relative_error", result.relative_error},
          {"relative_output_error",
           result.relative_output_error ? Json(*result.relative_output_error) : Json()},
          {"calibration_tokens", result.calibration_tokens}};
}

class QuantizeCommand : public Command {
 public:
  explicit QuantizeCommand(CLI::App& root);
  const CLI::App& app() const override { return *app_; }
  int run(Terminal& terminal) override;

 private:
  void add_options();
  void check_options() const;
  std::optional<QuantizeResult> quantize_until(const OrderlyStop& stop);
  void print_result(const QuantizeResult& result, Terminal& terminal) const;

  CLI::App* app_;
  QuantizeOptions options_;
  std::string out_;
  std::string calibration_;
  bool is_symmetric_ = false;
  bool measures_kv_scales_ = false;
  bool json_ = false;
};

QuantizeCommand::QuantizeCommand(CLI::App& root)
    : app_(add_command(root, "quantize", "Write a model with its weights rounded to 8 or 4 bits",
                       kQuantizeFooter)) {
  add_text(*app_,
           {.name = "MODEL",
            .placeholder = "TEXT",
            .help = "A model's folder, a GGUF file, or a name in the local Hugging Face cache",
            .is_required = true},
           options_.model);
  add_text(*app_,
           {.name = "OUT",
            .placeholder = "TEXT",
            .help = "The folder to write: a new or an empty one",
            .is_required = true},
           out_);
  add_options();
}

void QuantizeCommand::add_options() {
  add_choice(
      *app_, "--scheme", {"int8", "int4", "fp8"},
      [this](const std::string& text) {
        options_.scheme = text == "int8"   ? QuantizeScheme::kInt8
                          : text == "int4" ? QuantizeScheme::kInt4
                                           : QuantizeScheme::kFp8;
      },
      "What weights become [int4]", "");
  add_choice(
      *app_, "--group-size", {"32", "64", "128"},
      [this](const std::string& text) { options_.group_size = std::stoi(text); },
      fmt::format("Of integers: inputs that share a scale [{}]", options_.group_size), "");
  add_flag(*app_,
           {"--symmetric", "",
            "Of int4: no zero point for each group, for kernels that take none; larger errors"},
           is_symmetric_);
  add_choice(
      *app_, "--output-layer", {"keep", "int8", "int4"},
      [this](const std::string& text) {
        options_.output_layer.reset();
        if (text == "int8") options_.output_layer = QuantizeScheme::kInt8;
        if (text == "int4") options_.output_layer = QuantizeScheme::kInt4;
      },
      "What the output layer becomes [keep]", "");
  add_text(*app_, {"--calibrate", "FILE", "A text to calibrate with, or texts in a .jsonl file"},
           calibration_);
  add_value(
      *app_,
      {"--calibration-tokens", "N",
       fmt::format("The most tokens to take of the text [{}]", options_.max_calibration_tokens)},
      [this](const std::string& text) {
        const int64_t count = parse_count(text, "--calibration-tokens");
        if (count < 1) throw UsageError("--calibration-tokens: expected 1 or more, got 0");
        options_.max_calibration_tokens = count;
      });
  add_flag(*app_,
           {"--kv-scales", "",
            "Measure scales of keys and values by the calibration text, for --kv-cache-dtype fp8"},
           measures_kv_scales_);
  add_threads_option(*app_, options_.threads);
  add_flag(*app_, {"--json", "", "Print a JSON object"}, json_);
}

void QuantizeCommand::check_options() const {
  if (is_symmetric_ && options_.scheme != QuantizeScheme::kInt4 &&
      options_.output_layer != QuantizeScheme::kInt4) {
    throw UsageError("--symmetric: goes with int4; int8 and fp8 have no zero points");
  }
  if (is_given(*app_, "--calibration-tokens") && calibration_.empty()) {
    throw UsageError("--calibration-tokens: goes with --calibrate FILE");
  }
  if (measures_kv_scales_ && calibration_.empty()) {
    throw UsageError("--kv-scales: goes with --calibrate FILE");
  }
  if (options_.scheme != QuantizeScheme::kFp8) return;
  for (const char* option : {"--group-size", "--output-layer"}) {
    if (is_given(*app_, option)) {
      throw UsageError(fmt::format("{}: goes with int8 and int4, not with fp8", option));
    }
  }
  if (!calibration_.empty() && !measures_kv_scales_) {
    throw UsageError("--calibrate: goes with int8, int4 and --kv-scales, not with fp8 alone");
  }
}

std::optional<QuantizeResult> QuantizeCommand::quantize_until(const OrderlyStop& stop) {
  ProgressBar bar(STDERR_FILENO, "Quantising");
  options_.on_progress = [&](int64_t done, int64_t total) {
    bar.update(static_cast<double>(done) / static_cast<double>(total),
               fmt::format("{} of {}", format_bytes(done), format_bytes(total)));
    return !stop.is_asked();
  };
  return quantize(options_);
}

void QuantizeCommand::print_result(const QuantizeResult& result, Terminal& terminal) const {
  const double share =
      static_cast<double>(result.bytes_after) / static_cast<double>(result.bytes_before);
  terminal.out << styled(printable_line(result.out.string()), Style::kBold, terminal.out_colours)
               << '\n';
  Table table({Table::Align::kLeft, Table::Align::kLeft});
  table.add({"weights", fmt::format("{}: {} matrices", result.scheme, result.num_quantized)});
  if (!result.output_scheme.empty()) table.add({"output layer", result.output_scheme});
  if (!result.kept.empty()) {
    constexpr size_t kMostNames = 5;
    const size_t shown = std::min(result.kept.size(), kMostNames);
    const size_t more = result.kept.size() - shown;
    table.add(
        {"kept",
         fmt::format("{}{}",
                     fmt::join(result.kept.begin(),
                               result.kept.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
                     more > 0 ? fmt::format(" and {} more", more) : "")});
  }
  table.add({"size", fmt::format("{} from {} ({:.0f} %)", format_bytes(result.bytes_after),
                                 format_bytes(result.bytes_before), 100 * share)});
  if (result.calibration_tokens > 0) {
    table.add({"calibrated", fmt::format("by {} tokens", with_commas(result.calibration_tokens))});
  }
  if (!result.left_out.empty()) {
    table.add({"left out", printable_line(fmt::format("{}", fmt::join(result.left_out, ", ")))});
  }
  table.add(
      {"error", result.relative_output_error
                    ? fmt::format("{:.2f} % of the layers' outputs for the calibration text",
                                  100 * *result.relative_output_error)
                    : fmt::format("{:.2f} % of the rounded weights", 100 * result.relative_error)});
  terminal.out << table.str() << "Next: quire chat " << printable_line(result.out.string()) << '\n';
}

int QuantizeCommand::run(Terminal& terminal) {
  check_options();
  options_.model = model_folder(options_.model);
  options_.out = out_;
  options_.calibration = calibration_;
  options_.symmetric = is_symmetric_;
  options_.kv_scales = measures_kv_scales_;
  const OrderlyStop stop;
  const std::optional<QuantizeResult> result = quantize_until(stop);
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

std::unique_ptr<Command> make_quantize_command(CLI::App& root) {
  return std::make_unique<QuantizeCommand>(root);
}

}  // namespace quire::cli
