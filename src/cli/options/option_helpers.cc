#include "cli/options/option_helpers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/App.hpp>
#include <algorithm>

#include "cli/usage_error.h"

namespace quire::cli {
namespace {

constexpr const char* kHidden = "";

CLI::Option* with_group(CLI::Option* option, const OptionText& text) {
  if (!text.group.empty()) option->group(text.group);
  return option;
}

CLI::Option* with_text(CLI::Option* option, const OptionText& text) {
  return with_group(option, text)->type_name(text.placeholder)->required(text.is_required);
}

}  // namespace

CLI::App* add_command(CLI::App& parent, const std::string& name, const std::string& description,
                      const std::string& footer) {
  return parent.add_subcommand(name, description)->footer(footer);
}

bool is_given(const CLI::App& app, const std::string& option) {
  return app.count(option) > 0;
}

void hide(CLI::App& app, const std::string& option) {
  app.get_option(option)->group(kHidden);
}

void add_flag(CLI::App& app, const OptionText& text, bool& value) {
  with_group(app.add_flag(text.name, value, text.help), text);
}

void add_flag(CLI::App& app, const OptionText& text, const std::function<void()>& set) {
  with_group(app.add_flag_callback(text.name, set, text.help), text);
}

void add_text(CLI::App& app, const OptionText& text, std::string& value, const ValueCheck& check) {
  CLI::Option* option = with_text(app.add_option(text.name, value, text.help), text);
  if (check) option->check(check);
}

void add_number(CLI::App& app, const OptionText& text, double& value, const ValueCheck& check) {
  with_text(app.add_option(text.name, value, text.help), text)->check(check);
}

void add_text_list(CLI::App& app, const OptionText& text, std::vector<std::string>& values) {
  with_text(app.add_option(text.name, values, text.help), text)->allow_extra_args(false);
}

void add_several(CLI::App& app, const OptionText& text, std::vector<std::string>& values) {
  with_text(app.add_option(text.name, values, text.help), text)->allow_extra_args(true);
}

void add_comma_list(CLI::App& app, const OptionText& text, std::vector<std::string>& values) {
  with_text(app.add_option(text.name, values, text.help), text)
      ->delimiter(',')
      ->allow_extra_args(false);
}

void add_value(CLI::App& app, const OptionText& text, const SetValue& set) {
  with_text(app.add_option_function<std::string>(text.name, set, text.help), text);
}

void add_repeatable(CLI::App& app, const OptionText& text, const SetValue& set) {
  with_text(app.add_option_function<std::string>(text.name, set, text.help), text)
      ->trigger_on_parse();
}

void add_switch(CLI::App& app, const std::string& name, bool default_value,
                const std::function<void(bool)>& set, const std::string& help,
                const std::string& group) {
  app.add_flag_callback(
         "--" + name, [set] { set(true); }, help)
      ->group(default_value ? kHidden : group);
  app.add_flag_callback(
         "--no-" + name, [set] { set(false); }, help)
      ->group(default_value ? group : kHidden);
}

void add_choice(CLI::App& app, const std::string& option, const std::vector<std::string>& choices,
                const SetValue& set, const std::string& help, const std::string& group) {
  const auto check_and_set = [option, choices, set](const std::string& text) {
    if (std::find(choices.begin(), choices.end(), text) == choices.end()) {
      throw UsageError(
          fmt::format("{}: expected one of {}, got '{}'", option, fmt::join(choices, ", "), text));
    }
    set(text);
  };
  add_value(app, {option, fmt::format("{}", fmt::join(choices, "|")), help, group}, check_and_set);
}

}  // namespace quire::cli
