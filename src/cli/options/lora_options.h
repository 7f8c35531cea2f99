#pragma once
// LoRA adapters on the command line.
//
// Thread safety: free functions.
#include <cstdint>
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
// opening with `option`, for anything else, and for a name that no request can have.
LoraModuleArgument parse_lora_module(const std::string& text, const std::string& option);

// --enable-lora, --max-loras, --max-lora-rank, --max-cpu-loras, --lora-copy-memory-bytes.
void add_lora_engine_options(CLI::App& app, LoraOptions& options);
// Throws UsageError where one of the last four was given without the first.
void check_lora_engine_options(const CLI::App& app, const LoraOptions& options);

// Throws UsageError, opening with `option`, where one of the adapters has this name.
void check_new_name(const std::vector<LoraPath>& adapters, const std::string& name,
                    const std::string& option);

// The adapters of a command that makes answers itself.
struct GivenAdapters {
  std::vector<LoraPath> adapters;
  std::optional<int64_t> copy_memory_bytes;
};
// --lora NAME=PATH and --lora-copy-memory-bytes; with `several` the first may be repeated.
void add_lora_options(CLI::App& app, GivenAdapters& given, bool several);
// --lora with its own help, which says what several adapters are for.
void add_lora_option(CLI::App& app, std::vector<LoraPath>& adapters, const char* help);
// The engine's options for serving exactly these adapters. Throws Error for a folder that holds no
// adapter.
LoraOptions lora_options_for(const std::vector<LoraPath>& adapters);
// The same; throws UsageError where memory is given and no adapter.
LoraOptions lora_options_for(const GivenAdapters& given);

}  // namespace quire::cli
