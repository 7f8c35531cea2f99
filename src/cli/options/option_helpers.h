#pragma once
// Options that CLI11 has no word for.
#include <CLI/App.hpp>
#include <functional>
#include <string>
#include <vector>

namespace quire::cli {

// Adds --name and --no-name, which call `set` with true and false. Help shows the one that changes
// the default.
void add_switch(CLI::App& app, const std::string& name, bool default_value,
                const std::function<void(bool)>& set, const std::string& help,
                const std::string& group);

// Adds an option that takes one of some words.
void add_choice(CLI::App& app, const std::string& option, const std::vector<std::string>& choices,
                const std::function<void(const std::string&)>& set, const std::string& help,
                const std::string& group);

}  // namespace quire::cli
