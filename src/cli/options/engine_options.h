#pragma once
// The options that set up an engine, the same for every command that loads a model.
#include <cstdint>
#include <string>

#include "quire/engine_config.h"

namespace CLI {
class App;
}

namespace quire::cli {

// Adds the MODEL argument; `model` stays empty where none is given.
void add_model_argument(CLI::App& app, std::string& model);

// Adds MODEL and the engine's options, named as in vLLM. `config` must outlive the app.
// `seed_is_taken`: the command has a --seed of its own.
void add_engine_options(CLI::App& app, EngineConfig& config, bool seed_is_taken);

// Adds --seed; its default is what `seed` holds.
void add_seed_option(CLI::App& app, uint64_t& seed, const std::string& help,
                     const std::string& group);

// Parses a count as vLLM does: "4096", "4k" (4,000), "4K" (4,096) and so on with m, M, g, G, t and
// T. Throws UsageError naming `option` for anything else.
int64_t parse_count(const std::string& text, const std::string& option);

// Adds --structured-whitespace, whose default is what `white_space` holds
// (EngineConfig::structured_whitespace).
void add_white_space_option(CLI::App& app, std::string& white_space, const std::string& group = "");

// Adds --threads to a command that runs no engine; `threads` stays 0 where it is not given.
void add_threads_option(CLI::App& app, int& threads);

// The folder of the requested model: `model` itself, its name in the local cache, or the bundled
// model where it is empty. Throws Error where there is none.
std::string model_folder(const std::string& model);

}  // namespace quire::cli
