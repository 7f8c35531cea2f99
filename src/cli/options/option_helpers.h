#pragma once
// A command and its options in plain types. Only option_helpers.cc includes CLI11, whose headers
// take seconds to compile; describing a command needs little of them.
//
// Objects bound to an option (a variable, a function's captures) must outlive the app. Functions
// that take a value's text may throw UsageError.
#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace quire::cli {

// An option's name and its text in the help.
struct OptionText {
  std::string name;         // "--top-p", "-p,--prompt"; a word without dashes is found by its place
  std::string placeholder;  // for its value, e.g. "FILE", after which shells complete file names
  std::string help;
  std::string group{};  // the heading that it stands under; empty: that of all that have none
  bool is_required = false;
};

// Adds a subcommand. `footer` ends its help.
CLI::App* add_command(CLI::App& parent, const std::string& name, const std::string& description,
                      const std::string& footer);

// Whether the option was on the command line.
bool is_given(const CLI::App& app, const std::string& option);
// Hides an option from the help. It still works.
void hide(CLI::App& app, const std::string& option);

// An option without a value. `placeholder` is not used.
void add_flag(CLI::App& app, const OptionText& text, bool& value);
void add_flag(CLI::App& app, const OptionText& text, const std::function<void()>& set);

// Returns what was expected ("expected ...") if a value's text is wrong; empty: it is right.
using ValueCheck = std::function<std::string(const std::string& text)>;

void add_text(CLI::App& app, const OptionText& text, std::string& value,
              const ValueCheck& check = {});
void add_number(CLI::App& app, const OptionText& text, double& value, const ValueCheck& check);
// An option that may be given again; each adds a value.
void add_text_list(CLI::App& app, const OptionText& text, std::vector<std::string>& values);
// The same, and values may follow each other behind one name.
void add_several(CLI::App& app, const OptionText& text, std::vector<std::string>& values);
// As add_text_list, and a comma ends a value, too.
void add_comma_list(CLI::App& app, const OptionText& text, std::vector<std::string>& values);

using SetValue = std::function<void(const std::string& text)>;

void add_value(CLI::App& app, const OptionText& text, const SetValue& set);
// An option that may be given again: calls `set` for each, in the order of the command line.
void add_repeatable(CLI::App& app, const OptionText& text, const SetValue& set);

// Adds --name and --no-name, which call `set` with true and false. Help shows the one that changes
// the default.
void add_switch(CLI::App& app, const std::string& name, bool default_value,
                const std::function<void(bool)>& set, const std::string& help,
                const std::string& group);

// Adds an option that takes one of some words.
void add_choice(CLI::App& app, const std::string& option, const std::vector<std::string>& choices,
                const SetValue& set, const std::string& help, const std::string& group);

}  // namespace quire::cli
