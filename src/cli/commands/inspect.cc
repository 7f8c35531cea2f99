// quire inspect: what a model's or an adapter's folder holds.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <ostream>

#include "cli/commands/command.h"
#include "cli/json_lines.h"
#include "cli/options/engine_options.h"
#include "cli/options/option_helpers.h"
#include "cli/terminal/text_format.h"
#include "quire/lora.h"
#include "quire/plan.h"

namespace quire::cli {
namespace {

constexpr const char* kInspectFooter =
    R"(The folder of a LoRA adapter, as PEFT writes it, is shown too: its kind, its base model, rank and alpha, the
modules that it adapts, and the tensors that it has its own of. --tensors lists its modules.

Examples:
  quire inspect
  quire inspect ~/models/Qwen3-0.6B --tensors
  quire inspect Qwen/Qwen3-0.6B --json
  quire inspect ./my-adapter)";

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
  json["activations"] = info.activations;
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
  if (!info.activations.empty()) facts.add({"activations", info.activations});
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

Json to_json(const LoraInfo& info) {
  Json json = {{"folder", info.folder},         {"kind", info.kind},
               {"base_model", info.base_model}, {"num_parameters", info.num_parameters},
               {"weight_bytes", info.bytes},    {"dtype", info.dtype},
               {"modules", Json::array()},      {"replaced", info.replaced}};
  for (const LoraModuleInfo& module : info.modules) {
    json["modules"].push_back({{"name", module.name},
                               {"rank", module.rank},
                               {"alpha", module.alpha},
                               {"scale", module.scale},
                               {"inputs", module.inputs},
                               {"outputs", module.outputs}});
  }
  return json;
}

// "8", or "4 to 16" where modules differ.
template <typename Value>
std::string range_of(const std::vector<LoraModuleInfo>& modules, Value LoraModuleInfo::*value) {
  const auto [least, most] = std::ranges::minmax(modules, {}, value);
  if (least.*value == most.*value) return fmt::format("{}", least.*value);
  return fmt::format("{} to {}", least.*value, most.*value);
}

// "56: q_proj (28), v_proj (28)".
std::string describe_modules(const std::vector<LoraModuleInfo>& modules) {
  std::map<std::string, int> counts;
  for (const LoraModuleInfo& module : modules) {
    ++counts[module.name.substr(module.name.rfind('.') + 1)];
  }
  std::vector<std::string> parts;
  for (const auto& [name, count] : counts) parts.push_back(fmt::format("{} ({})", name, count));
  return fmt::format("{}: {}", modules.size(), fmt::join(parts, ", "));
}

// The first of the names, and how many more there are.
std::string describe_replaced(const std::vector<std::string>& names) {
  constexpr size_t kMostNames = 5;
  const size_t shown = std::min(names.size(), kMostNames);
  const auto end = names.begin() + static_cast<std::ptrdiff_t>(shown);
  return fmt::format("{}{}", fmt::join(names.begin(), end, ", "),
                     shown < names.size() ? fmt::format(" and {} more", names.size() - shown) : "");
}

void print_lora_modules(const LoraInfo& info, Terminal& terminal) {
  terminal.out << '\n' << styled("Modules", Style::kBold, terminal.out_colours) << '\n';
  Table table({Table::Align::kLeft, Table::Align::kRight, Table::Align::kRight,
               Table::Align::kRight, Table::Align::kRight});
  table.add({"name", "rank", "alpha", "inputs", "outputs"});
  for (const LoraModuleInfo& module : info.modules) {
    table.add({printable_line(module.name), std::to_string(module.rank),
               fmt::format("{}", module.alpha), std::to_string(module.inputs),
               std::to_string(module.outputs)});
  }
  terminal.out << table.str();
}

void print_lora(const LoraInfo& info, bool with_modules, Terminal& terminal) {
  terminal.out << styled(printable_line(info.folder), Style::kBold, terminal.out_colours) << '\n';
  Table facts({Table::Align::kLeft, Table::Align::kLeft});
  facts.add({"adapter", info.kind});
  facts.add(
      {"base model", info.base_model.empty() ? "not named" : printable_line(info.base_model)});
  if (!info.modules.empty()) {
    facts.add({"rank", range_of(info.modules, &LoraModuleInfo::rank)});
    facts.add({"alpha", range_of(info.modules, &LoraModuleInfo::alpha)});
    facts.add({"modules", printable_line(describe_modules(info.modules))});
  }
  if (!info.replaced.empty()) {
    facts.add({"replaces", printable_line(describe_replaced(info.replaced))});
  }
  facts.add({"parameters", with_commas(info.num_parameters)});
  facts.add({"weights", fmt::format("{}, {}", format_bytes(info.bytes), info.dtype)});
  terminal.out << facts.str();
  if (with_modules) print_lora_modules(info, terminal);
}

class InspectCommand : public Command {
 public:
  explicit InspectCommand(CLI::App& root)
      : app_(add_command(root, "inspect", "Show what a model's folder holds, or an adapter's",
                         kInspectFooter)) {
    add_model_argument(*app_, model_);
    add_flag(*app_, {"--tensors", "", "List the tensors as well"}, tensors_);
    add_flag(*app_, {"--json", "", "Print a JSON object, tensors included"}, json_);
  }

  const CLI::App& app() const override { return *app_; }

  int run(Terminal& terminal) override {
    if (is_lora_adapter(model_)) return run_for_adapter(terminal);
    const ModelInfo info = inspect(model_folder(model_));
    if (json_) {
      terminal.out << to_line(to_json(info)) << '\n';
    } else {
      print_tables(info, tensors_, terminal);
    }
    return 0;
  }

 private:
  int run_for_adapter(Terminal& terminal) const {
    const LoraInfo info = inspect_lora(model_);
    if (json_) {
      terminal.out << to_line(to_json(info)) << '\n';
    } else {
      print_lora(info, tensors_, terminal);
    }
    return 0;
  }

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
