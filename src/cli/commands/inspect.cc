// quire inspect: what a model folder holds.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <ostream>

#include "cli/commands/command.h"
#include "cli/json_lines.h"
#include "cli/options/engine_options.h"
#include "cli/options/option_helpers.h"
#include "cli/terminal/text_format.h"
#include "quire/plan.h"

namespace quire::cli {
namespace {

constexpr const char* kInspectFooter = R"(Examples:
  quire inspect
  quire inspect ~/models/Qwen3-0.6B --tensors
  quire inspect Qwen/Qwen3-0.6B --json)";

Json to_json(const ModelInfo& info) {
  Json json;
  json["folder"] = info.folder;
  json["architecture"] = info.architecture;
  json["supported"] = info.supported;
  json["unsupported_reason"] = info.unsupported_reason;
  json["num_parameters"] = info.num_parameters;
  json["weight_bytes"] = info.weight_bytes;
  json["dtype"] = info.dtype;
  json["quantization"] = info.quantization;
  json["vocab_size"] = info.vocab_size;
  json["hidden_size"] = info.hidden_size;
  json["intermediate_size"] = info.intermediate_size;
  json["num_layers"] = info.num_layers;
  json["num_attention_heads"] = info.num_attention_heads;
  json["num_key_value_heads"] = info.num_key_value_heads;
  json["head_dim"] = info.head_dim;
  json["max_model_len"] = info.max_model_len;
  json["rope"] = info.rope;
  json["sliding_window"] = info.sliding_window;
  json["tie_word_embeddings"] = info.tie_word_embeddings;
  json["eos_token_ids"] = info.eos_token_ids;
  json["has_tokenizer"] = info.has_tokenizer;
  json["tokenizer_vocab_size"] = info.tokenizer_vocab_size;
  json["has_chat_template"] = info.has_chat_template;
  json["files"] = info.files;
  json["tensors"] = Json::array();
  for (const TensorInfo& tensor : info.tensors) {
    json["tensors"].push_back({{"name", tensor.name},
                               {"dtype", tensor.dtype},
                               {"shape", tensor.shape},
                               {"file", tensor.file}});
  }
  return json;
}

std::string yes_no(bool value) {
  return value ? "yes" : "no";
}

void print_tables(const ModelInfo& info, bool with_tensors, Terminal& terminal) {
  const auto heading = [&](std::string_view text) {
    terminal.out << styled(printable_line(text), Style::kBold, terminal.out_colours) << '\n';
  };
  heading(info.folder);
  Table facts({Table::Align::kLeft, Table::Align::kLeft});
  facts.add({"architecture", info.architecture});
  facts.add({"supported", info.supported ? "yes" : "no: " + info.unsupported_reason});
  facts.add({"parameters", with_commas(info.num_parameters)});
  facts.add({"weights", fmt::format("{}, {}", format_bytes(info.weight_bytes), info.dtype)});
  if (!info.quantization.empty()) facts.add({"quantisation", info.quantization});
  facts.add({"layers", std::to_string(info.num_layers)});
  facts.add({"hidden size", with_commas(info.hidden_size)});
  facts.add({"intermediate size", with_commas(info.intermediate_size)});
  facts.add(
      {"attention heads", fmt::format("{} of {}, {} of keys and values", info.num_attention_heads,
                                      info.head_dim, info.num_key_value_heads)});
  facts.add({"vocabulary", with_commas(info.vocab_size)});
  facts.add({"longest sequence", with_commas(info.max_model_len)});
  facts.add({"rope", info.rope});
  facts.add({"sliding window", info.sliding_window});
  facts.add({"tied embeddings", yes_no(info.tie_word_embeddings)});
  facts.add({"end of sequence", fmt::format("{}", fmt::join(info.eos_token_ids, ", "))});
  facts.add({"tokenizer", info.has_tokenizer ? fmt::format("yes, {} tokens",
                                                           with_commas(info.tokenizer_vocab_size))
                                             : "no"});
  facts.add({"chat template", yes_no(info.has_chat_template)});
  terminal.out << facts.str() << '\n';
  heading("Files");
  for (const std::string& file : info.files) terminal.out << "  " << printable_line(file) << '\n';
  if (!with_tensors) return;
  terminal.out << '\n';
  heading("Tensors");
  Table tensors(
      {Table::Align::kLeft, Table::Align::kLeft, Table::Align::kLeft, Table::Align::kLeft});
  for (const TensorInfo& tensor : info.tensors) {
    tensors.add({tensor.name, tensor.dtype, fmt::format("[{}]", fmt::join(tensor.shape, ", ")),
                 tensor.file});
  }
  terminal.out << tensors.str();
}

class InspectCommand : public Command {
 public:
  explicit InspectCommand(CLI::App& root)
      : app_(add_command(root, "inspect", "Show what a model folder holds", kInspectFooter)) {
    add_model_argument(*app_, model_);
    add_flag(*app_, {"--tensors", "", "List the tensors as well"}, tensors_);
    add_flag(*app_, {"--json", "", "Print a JSON object, tensors included"}, json_);
  }

  const CLI::App& app() const override { return *app_; }

  int run(Terminal& terminal) override {
    const ModelInfo info = inspect(model_folder(model_));
    if (json_) {
      terminal.out << to_line(to_json(info)) << '\n';
    } else {
      print_tables(info, tensors_, terminal);
    }
    return 0;
  }

 private:
  CLI::App* app_;
  std::string model_;
  bool tensors_ = false;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_inspect_command(CLI::App& root) {
  return std::make_unique<InspectCommand>(root);
}

}  // namespace quire::cli
