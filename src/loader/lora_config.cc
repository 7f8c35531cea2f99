#include "loader/lora_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/json_text.h"
#include "base/lower_case.h"
#include "base/mapped_file.h"
#include "loader/json_fields.h"
#include "quire/error.h"

namespace quire {
namespace fs = std::filesystem;
namespace {

using loader_internal::JsonFields;
using loader_internal::shown;

constexpr const char* kLoraConfigFile = "adapter_config.json";
constexpr size_t kMaxLoraConfigBytes = 16 << 20;
constexpr size_t kMaxPatterns = 4096;
constexpr double kMaxAlpha = 1e9;

// What the config may say besides what is read below: of training, of where the model is from, and
// of sizes that only features use which are refused.
constexpr std::array<std::string_view, 16> kIgnoredFields = {
    "auto_mapping",      "base_model_name_or_path",
    "inference_mode",    "lora_dropout",
    "megatron_core",     "peft_version",
    "task_type",         "revision",
    "qalora_group_size", "runtime_config",
    "loftq_config",      "eva_config",
    "corda_config",      "lora_ga_config",
    "merge_weights",     "peft_type"};
// What is read.
constexpr std::array<std::string_view, 17> kReadFields = {"r",
                                                          "lora_alpha",
                                                          "use_rslora",
                                                          "use_dora",
                                                          "lora_bias",
                                                          "target_modules",
                                                          "exclude_modules",
                                                          "layers_to_transform",
                                                          "bias",
                                                          "layers_pattern",
                                                          "rank_pattern",
                                                          "alpha_pattern",
                                                          "init_lora_weights",
                                                          "modules_to_save",
                                                          "fan_in_fan_out",
                                                          "ensure_weight_tying",
                                                          "trainable_token_indices"};

bool is_empty(const nlohmann::ordered_json& value) {
  return value.is_null() || value == false ||
         ((value.is_object() || value.is_array()) && value.empty());
}

void refuse_unknown_fields(const JsonFields& fields) {
  for (const std::string& name : fields.names()) {
    const auto* value = fields.find(name.c_str());
    if (value == nullptr || is_empty(*value)) continue;
    if (std::ranges::find(kIgnoredFields, name) != kIgnoredFields.end()) continue;
    if (std::ranges::find(kReadFields, name) != kReadFields.end()) continue;
    fields.fail(name.c_str(),
                fmt::format("is {}; expected it to be off, as quire computes LoRA, rsLoRA and "
                            "DoRA, and this is none of them",
                            shown(*value)));
  }
}

void refuse_other_methods(const JsonFields& fields) {
  const std::optional<std::string> type = fields.string("peft_type");
  if (!type) fields.fail("peft_type", "is missing; expected \"LORA\"");
  if (*type != "LORA") fields.fail_value("peft_type", "\"LORA\", the one method that quire reads");
  const std::optional<std::string> task = fields.string("task_type");
  if (task && *task != "CAUSAL_LM") fields.fail_value("task_type", "\"CAUSAL_LM\" or null");
  if (fields.boolean("fan_in_fan_out").value_or(false)) {
    fields.fail_value("fan_in_fan_out", "false, as quire's models have no transposed weights");
  }
  const std::optional<std::string> bias = fields.string("bias");
  if (bias && *bias != "none" && *bias != "all" && *bias != "lora_only") {
    fields.fail_value("bias", "\"none\", \"all\" or \"lora_only\"");
  }
  if (const auto* tokens = fields.find("trainable_token_indices"); tokens && !is_empty(*tokens)) {
    fields.fail_value(
        "trainable_token_indices",
        "null: quire does not read embeddings that were trained for some tokens only");
  }
}

// Initialisations that change the base's weights, so that the adapter does not fit the weights that
// the base's checkpoint has.
void refuse_changed_base(const JsonFields& fields) {
  const auto* init = fields.find("init_lora_weights");
  if (init == nullptr || init->is_boolean()) return;
  const std::string name = fields.string("init_lora_weights").value();
  for (const std::string_view safe : {"gaussian", "eva", "orthogonal", "mica"}) {
    if (name == safe) return;
  }
  fields.fail_value("init_lora_weights",
                    "true, false, \"gaussian\", \"eva\", \"orthogonal\" or \"mica\": others change "
                    "the base model's weights; save the adapter with PEFT's "
                    "path_initial_model_for_weight_conversion");
}

LayerPattern whole_name(const std::string& expression, const std::string& field) {
  return LayerPattern::regex(fmt::format("(?:{})\\z", expression), field);
}

LoraModuleNames read_names(const JsonFields& fields, const char* field) {
  LoraModuleNames result;
  const auto* value = fields.find(field);
  if (value == nullptr) return result;
  if (!value->is_string()) {
    if (!value->is_array()) fields.fail_value(field, "a list of names or a regular expression");
    result.names = fields.strings(field).value();
    return result;
  }
  const auto text = value->get<std::string>();
  if (same_in_lower_case(text, "all-linear")) {
    result.all_linear = true;
  } else {
    result.pattern.push_back(whole_name(text, fields.file() + ": " + fields.name_of(field)));
  }
  return result;
}

void read_targets(const JsonFields& fields, LoraConfig& config) {
  config.targets = read_names(fields, "target_modules");
  if (!config.targets.all_linear && config.targets.names.empty() &&
      config.targets.pattern.empty() && config.modules_to_save.empty()) {
    fields.fail("target_modules",
                "is missing or empty; expected names of modules, a regular expression or "
                "\"all-linear\"");
  }
  config.excluded = read_names(fields, "exclude_modules");
  config.excluded.all_linear = false;  // a name like any other there
}

// A string, or a list of them.
std::vector<std::string> text_or_texts(const JsonFields& fields, const char* field) {
  const auto* value = fields.find(field);
  if (value != nullptr && value->is_string()) return {value->get<std::string>()};
  return fields.strings(field).value_or(std::vector<std::string>());
}

void read_layers(const JsonFields& fields, LoraConfig& config) {
  constexpr int64_t kMaxLayer = 1 << 20;
  config.layers =
      fields.integers("layers_to_transform", 0, kMaxLayer).value_or(std::vector<int64_t>());
  const std::string where = fields.file() + ": " + fields.name_of("layers_pattern");
  for (const std::string& text : text_or_texts(fields, "layers_pattern")) {
    config.layers_pattern.push_back(
        LayerPattern::regex(fmt::format("(?:.*\\.)?(?:{})\\.\\z", text), where));
  }
  if (!config.layers.empty() && config.targets.names.empty()) {
    fields.fail("layers_to_transform", "goes with target_modules as a list of names only");
  }
}

// An object's patterns of names and what each stands for.
template <typename Value, typename Read>
std::vector<std::pair<LayerPattern, Value>> read_patterns(const JsonFields& fields,
                                                          const char* field, const Read& read) {
  std::vector<std::pair<LayerPattern, Value>> result;
  const std::optional<JsonFields> patterns = fields.object(field);
  if (!patterns) return result;
  const std::vector<std::string> names = patterns->names();
  if (names.size() > kMaxPatterns) {
    fields.fail(field,
                fmt::format("has {} entries; expected at most {}", names.size(), kMaxPatterns));
  }
  const std::string where = fields.file() + ": " + fields.name_of(field);
  for (const std::string& name : names) {
    const std::optional<Value> value = read(*patterns, name.c_str());
    if (!value) patterns->fail(name.c_str(), "is null; expected a number");
    result.emplace_back(LayerPattern::regex(fmt::format("(?:.*\\.)?(?:{})\\z", name), where),
                        *value);
  }
  return result;
}

void read_ranks(const JsonFields& fields, LoraConfig& config) {
  config.rank = fields.integer("r", 1, kMaxLoraRank).value_or(config.rank);
  config.alpha = fields.number("lora_alpha", -kMaxAlpha, kMaxAlpha).value_or(config.alpha);
  config.rank_pattern = read_patterns<int64_t>(fields, "rank_pattern",
                                               [](const JsonFields& patterns, const char* name) {
                                                 return patterns.integer(name, 1, kMaxLoraRank);
                                               });
  config.alpha_pattern = read_patterns<double>(
      fields, "alpha_pattern", [](const JsonFields& patterns, const char* name) {
        return patterns.number(name, -kMaxAlpha, kMaxAlpha);
      });
}

// The part of a module's name up to its layer's number, the dot included, and the number: for
// "model.layers.3.mlp.up_proj" they are "model.layers." and 3.
struct NumberedLayer {
  std::string_view prefix;
  int64_t number = 0;
};

// The first layer from `begin` on that has a module below it.
std::optional<NumberedLayer> next_layer(std::string_view module, size_t begin) {
  for (size_t dot = module.find('.', begin); dot != std::string_view::npos;
       dot = module.find('.', dot + 1)) {
    const size_t end = module.find('.', dot + 1);
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view digits = module.substr(dot + 1, end - dot - 1);
    int64_t number = 0;
    const auto [rest, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (error == std::errc() && rest == digits.data() + digits.size() && digits.front() != '-') {
      return NumberedLayer{module.substr(0, dot + 1), number};
    }
  }
  return std::nullopt;
}

// Without patterns, the first number that two names stand before.
bool is_layer_of(const LoraConfig& config, const NumberedLayer& layer) {
  if (config.layers_pattern.empty()) {
    return layer.prefix.substr(0, layer.prefix.size() - 1).find('.') != std::string_view::npos;
  }
  return std::ranges::any_of(config.layers_pattern, [&](const LayerPattern& pattern) {
    return pattern.matches(layer.prefix);
  });
}

std::optional<int64_t> layer_of(const LoraConfig& config, std::string_view module) {
  for (auto layer = next_layer(module, 0); layer;
       layer = next_layer(module, layer->prefix.size())) {
    if (is_layer_of(config, *layer)) return layer->number;
  }
  return std::nullopt;
}

template <typename Value>
Value first_match(const std::vector<std::pair<LayerPattern, Value>>& patterns,
                  std::string_view module, Value otherwise) {
  const auto found = std::ranges::find_if(
      patterns, [&](const auto& pattern) { return pattern.first.matches(module); });
  return found == patterns.end() ? otherwise : found->second;
}

bool is_embedding_name(std::string_view module) {
  return module.ends_with("embed_tokens") || module == "lm_head" || module.ends_with(".lm_head");
}

bool ends_with_name(std::string_view module, std::string_view name) {
  return module == name || (module.size() > name.size() && module.ends_with(name) &&
                            module[module.size() - name.size() - 1] == '.');
}

}  // namespace

bool LoraModuleNames::matches(std::string_view module) const {
  if (all_linear) return !is_embedding_name(module);
  if (!pattern.empty()) return pattern.front().matches(module);
  return std::ranges::any_of(names,
                             [&](const std::string& name) { return ends_with_name(module, name); });
}

bool LoraConfig::targets_module(std::string_view module) const {
  if (excluded.matches(module) || saves_module(module)) return false;
  // The tied output layer goes with the embedding.
  if (ensure_weight_tying && ends_with_name(module, "lm_head") &&
      targets_module("model.embed_tokens")) {
    return true;
  }
  if (!targets.matches(module)) return false;
  if (layers.empty()) return true;
  const std::optional<int64_t> layer = layer_of(*this, module);
  return layer && std::ranges::find(layers, *layer) != layers.end();
}

bool LoraConfig::saves_module(std::string_view module) const {
  const std::string dotted = fmt::format(".{}.", module);
  return std::ranges::any_of(modules_to_save, [&](const std::string& name) {
    return dotted.find(fmt::format(".{}.", name)) != std::string::npos;
  });
}

int64_t LoraConfig::rank_of(std::string_view module) const {
  return first_match(rank_pattern, module, rank);
}

double LoraConfig::alpha_of(std::string_view module) const {
  return first_match(alpha_pattern, module, alpha);
}

double LoraConfig::scale_of(std::string_view module) const {
  const auto module_rank = static_cast<double>(rank_of(module));
  return alpha_of(module) / (rank_stabilised ? std::sqrt(module_rank) : module_rank);
}

std::string LoraConfig::kind() const {
  return fmt::format("{}{}", rank_stabilised ? "rs" : "", dora ? "DoRA" : "LoRA");
}

bool is_lora_folder(const fs::path& folder) {
  std::error_code error;
  return fs::exists(folder / kLoraConfigFile, error);
}

LoraConfig load_lora_config(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    throw Error(fmt::format("{}: expected an adapter's folder, but there is {}.", folder.string(),
                            fs::exists(folder, error) ? "a file" : "nothing"));
  }
  const fs::path path = folder / kLoraConfigFile;
  if (!fs::exists(path, error)) {
    throw Error(fmt::format("{}: the folder has no {}; expected an adapter that PEFT has saved.",
                            folder.string(), kLoraConfigFile));
  }
  return parse_lora_config(read_text_file(path, kMaxLoraConfigBytes), path.string());
}

LoraConfig parse_lora_config(std::string_view json, const std::string& name) {
  const nlohmann::ordered_json object = parse_json_object(json, name);
  const JsonFields fields(object, name);
  refuse_other_methods(fields);
  refuse_changed_base(fields);
  refuse_unknown_fields(fields);
  LoraConfig config;
  config.base_model = fields.string("base_model_name_or_path").value_or("");
  config.rank_stabilised = fields.boolean("use_rslora").value_or(false);
  config.dora = fields.boolean("use_dora").value_or(false);
  config.ensure_weight_tying = fields.boolean("ensure_weight_tying").value_or(false);
  config.modules_to_save = fields.strings("modules_to_save").value_or(std::vector<std::string>());
  read_ranks(fields, config);
  read_targets(fields, config);
  read_layers(fields, config);
  return config;
}

}  // namespace quire
