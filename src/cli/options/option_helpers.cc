#include "cli/options/option_helpers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cli/usage_error.h"

namespace quire::cli {

void add_switch(CLI::App& app, const std::string& name, bool default_value,
                const std::function<void(bool)>& set, const std::string& help,
                const std::string& group) {
  constexpr const char* kHidden = "";
  app.add_flag_callback(
         "--" + name, [set] { set(true); }, help)
      ->group(default_value ? kHidden : group);
  app.add_flag_callback(
         "--no-" + name, [set] { set(false); }, help)
      ->group(default_value ? group : kHidden);
}

void add_choice(CLI::App& app, const std::string& option, const std::vector<std::string>& choices,
                const std::function<void(const std::string&)>& set, const std::string& help,
                const std::string& group) {
  const auto check_and_set = [option, choices, set](const std::string& text) {
    if (std::find(choices.begin(), choices.end(), text) == choices.end()) {
      throw UsageError(
          fmt::format("{}: expected one of {}, got '{}'", option, fmt::join(choices, ", "), text));
    }
    set(text);
  };
  app.add_option_function<std::string>(option, check_and_set, help)
      ->type_name(fmt::format("{}", fmt::join(choices, "|")))
      ->group(group);
}

}  // namespace quire::cli
