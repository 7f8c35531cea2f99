#pragma once
// LoRA adapters on the command line.
//
// Thread safety: free functions.
#include <optional>
#include <string>
#include <vector>

#include "quire/lora_serving.h"

namespace CLI {
class App;
}

namespace quire::cli {

// An adapter as --lora-modules names it.
struct LoraModuleArgument {
  LoraPath adapter;
  std::string base_model_name;  // empty: not said
};

// "NAME=PATH", or vLLM's {"name": ..., "path": ..., "base_model_name": ...}. Throws UsageError,
// opening with `option`, for anything else.
LoraModuleArgument parse_lora_module(const std::string& text, const std::string& option);

// --enable-lora, --max-loras, --max-lora-rank, --max-cpu-loras, --lora-copy-memory-bytes.
void add_lora_engine_options(CLI::App& app, LoraOptions& options);
// Throws UsageError where one of the last four was given without the first.
void check_lora_engine_options(const CLI::App& app, const LoraOptions& options);

// --lora NAME=PATH, for commands that make answers themselves; with `several` it may be repeated.
void add_lora_option(CLI::App& app, std::vector<LoraPath>& adapters, bool several);
// The same with its own help, which says what several adapters are for.
void add_lora_option(CLI::App& app, std::vector<LoraPath>& adapters, const char* help);
// The engine's options for serving exactly these adapters. Throws Error for a folder that holds no
// adapter.
LoraOptions lora_options_for(const std::vector<LoraPath>& adapters);

}  // namespace quire::cli
