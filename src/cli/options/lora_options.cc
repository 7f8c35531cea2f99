#include "cli/options/lora_options.h"

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/json_text.h"
#include "cli/options/engine_options.h"
#include "cli/options/option_helpers.h"
#include "cli/usage_error.h"
#include "quire/lora.h"

namespace quire::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kLoraGroup = "LoRA adapters";
constexpr const char* kMaxLorasOption = "--max-loras";
constexpr const char* kMaxRankOption = "--max-lora-rank";
constexpr const char* kMaxCpuLorasOption = "--max-cpu-loras";
constexpr const char* kCopyMemoryOption = "--lora-copy-memory-bytes";

LoraModuleArgument module_from_json(const std::string& text, const std::string& option) {
  Json object;
  try {
    object = parse_json_object(text, option);
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
  LoraModuleArgument module;
  for (const auto& [name, value] : object.items()) {
    std::string* const member = name == "name"              ? &module.adapter.name
                                : name == "path"            ? &module.adapter.path
                                : name == "base_model_name" ? &module.base_model_name
                                                            : nullptr;
    if (member == nullptr) {
      throw UsageError(
          fmt::format("{}: {} is not known; expected \"name\", \"path\" and \"base_model_name\"",
                      option, Json(name).dump()));
    }
    if (value.is_null()) continue;
    if (!value.is_string()) {
      throw UsageError(
          fmt::format("{}: \"{}\" is {}; expected a string", option, name, json_kind(value)));
    }
    *member = value.get<std::string>();
  }
  return module;
}

void add_limit(CLI::App& app, const std::string& option, int64_t most,
               const std::function<void(int64_t)>& set, const std::string& help) {
  add_value(app, {option, "N", help, kLoraGroup}, [option, most, set](const std::string& text) {
    const int64_t value = parse_count(text, option);
    if (value < 1 || value > most) {
      throw UsageError(fmt::format("{}: expected 1 to {}, got {}", option, most, value));
    }
    set(value);
  });
}

// As the API checks the names that clients load adapters by.
void check_name(const std::string& name, const std::string& option) {
  if (name.size() > kMaxAdapterNameBytes) {
    throw UsageError(fmt::format("{}: the adapter's name has {} bytes; expected at most {}", option,
                                 name.size(), kMaxAdapterNameBytes));
  }
  const auto is_control = [](char c) { return (c >= 0 && c < ' ') || c == 0x7f; };
  if (std::ranges::any_of(name, is_control)) {
    throw UsageError(fmt::format("{}: the adapter's name {} has control characters; expected none",
                                 option,
                                 Json(name).dump(-1, ' ', false, Json::error_handler_t::replace)));
  }
}

void add_copy_memory_option(CLI::App& app, std::optional<int64_t>& bytes) {
  add_value(app,
            {kCopyMemoryOption, "BYTES",
             "Memory on each GPU, --max-loras times, for trained copies of an adapter's matrices "
             "[what those named at the start take]",
             kLoraGroup},
            [&bytes](const std::string& text) {
              const int64_t value = parse_count(text, kCopyMemoryOption);
              if (value < 0 || value > kMaxLoraCopyBytes) {
                throw UsageError(fmt::format("{}: expected 0 to {}, got {}", kCopyMemoryOption,
                                             kMaxLoraCopyBytes, text));
              }
              bytes = value;
            });
}

// What --lora does with each of its values.
auto adder_to(std::vector<LoraPath>& adapters) {
  return [&adapters](const std::string& text) {
    LoraPath adapter = parse_lora_module(text, "--lora").adapter;
    check_new_name(adapters, adapter.name, "--lora");
    adapters.push_back(std::move(adapter));
  };
}

}  // namespace

LoraModuleArgument parse_lora_module(const std::string& text, const std::string& option) {
  LoraModuleArgument module;
  if (text.starts_with('{')) {
    module = module_from_json(text, option);
  } else {
    const size_t equals = text.find('=');
    module.adapter.name = text.substr(0, equals);
    if (equals != std::string::npos) module.adapter.path = text.substr(equals + 1);
  }
  if (module.adapter.name.empty() || module.adapter.path.empty()) {
    throw UsageError(fmt::format(
        "{}: expected NAME=PATH, the adapter's name and its folder, got '{}'", option, text));
  }
  check_name(module.adapter.name, option);
  return module;
}

void check_new_name(const std::vector<LoraPath>& adapters, const std::string& name,
                    const std::string& option) {
  if (std::ranges::find(adapters, name, &LoraPath::name) == adapters.end()) return;
  throw UsageError(fmt::format("{}: the name {} is given twice; expected another for each adapter",
                               option, name));
}

void add_lora_engine_options(CLI::App& app, LoraOptions& options) {
  add_flag(
      app,
      {"--enable-lora", "",
       "Serve LoRA adapters beside the model, each to requests that name it as their model [off]",
       kLoraGroup},
      options.enabled);
  add_limit(
      app, kMaxLorasOption, kMaxLoras,
      [&options](int64_t value) { options.max_loras = static_cast<int>(value); },
      fmt::format("Different adapters in one step: requests with others wait [{}]",
                  options.max_loras));
  add_limit(
      app, kMaxRankOption, kMaxServedLoraRank,
      [&options](int64_t value) { options.max_lora_rank = value; },
      fmt::format("The largest rank of an adapter; memory is planned for it [{}]",
                  options.max_lora_rank));
  add_limit(
      app, kMaxCpuLorasOption, 1'000'000,
      [&options](int64_t value) { options.max_cpu_loras = static_cast<int>(value); },
      "Adapters that stay in memory; others are read again when a request names them "
      "[--max-loras]");
  add_copy_memory_option(app, options.copy_memory_bytes);
}

void check_lora_engine_options(const CLI::App& app, const LoraOptions& options) {
  if (options.enabled) return;
  for (const char* option :
       {kMaxLorasOption, kMaxRankOption, kMaxCpuLorasOption, kCopyMemoryOption}) {
    if (app.count(option) > 0) throw UsageError(fmt::format("{} needs --enable-lora", option));
  }
}

void add_lora_option(CLI::App& app, std::vector<LoraPath>& adapters, const char* help) {
  add_repeatable(app, {"--lora", "NAME=PATH", help, kLoraGroup}, adder_to(adapters));
}

void add_lora_options(CLI::App& app, GivenAdapters& given, bool several) {
  const char* one = "A LoRA adapter to answer with: a name, and the folder that PEFT has saved";
  const char* many =
      "A LoRA adapter to answer with, a name and the folder that PEFT has saved; may be given "
      "again: prompts that do not name theirs (\"lora\" in JSON lines) take the first";
  if (several) {
    add_lora_option(app, given.adapters, many);
  } else {
    add_value(app, {"--lora", "NAME=PATH", one, kLoraGroup}, adder_to(given.adapters));
  }
  add_copy_memory_option(app, given.copy_memory_bytes);
}

LoraOptions lora_options_for(const std::vector<LoraPath>& adapters) {
  LoraOptions options;
  if (adapters.empty()) return options;
  options.enabled = true;
  options.modules = adapters;
  options.max_loras = static_cast<int>(std::min<size_t>(adapters.size(), kMaxLoras));
  options.max_cpu_loras = static_cast<int>(adapters.size());
  options.max_lora_rank = 1;
  for (const LoraPath& adapter : adapters) {
    for (const LoraModuleInfo& module : inspect_lora(adapter.path).modules) {
      options.max_lora_rank = std::max(options.max_lora_rank, module.rank);
    }
  }
  options.max_lora_rank = std::min(options.max_lora_rank, kMaxServedLoraRank);
  return options;
}

LoraOptions lora_options_for(const GivenAdapters& given) {
  if (given.copy_memory_bytes && given.adapters.empty()) {
    throw UsageError(fmt::format("{} needs --lora", kCopyMemoryOption));
  }
  LoraOptions options = lora_options_for(given.adapters);
  options.copy_memory_bytes = given.copy_memory_bytes;
  return options;
}

}  // namespace quire::cli
