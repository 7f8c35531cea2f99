#pragma once
// The sampling parameters that a user gives, as options of a command or as fields of a JSON line.
//
// One table serves both, so that names, types and messages are the same. A value given replaces the
// default, which is the model's own; fields left out keep it.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/json_lines.h"
#include "quire/sampling_params.h"

namespace CLI {
class App;
}

namespace quire::cli {

class SamplingFields {
 public:
  // Sets one field, e.g. set("top_p", 0.9); null stands for "none" where the field may be left out.
  // `text`: the object that has the field, as the user wrote it, where that is known; a
  // constraint's schema is taken from it, with all of its digits. Throws Error, opening with
  // `where`, for an unknown name or a value of the wrong type.
  void set(std::string_view name, const Json& value, std::string_view where,
           std::string_view text = {});
  // Adds to a field that holds a list or a map, or sets any other.
  void add(std::string_view name, const Json& value, std::string_view where);

  bool has(std::string_view name) const { return fields_.contains(std::string(name)); }

  // The given parameters, by name.
  const Json& given() const { return fields_; }

  // `defaults` with the given parameters replaced.
  SamplingParams apply(SamplingParams defaults) const;
  // Throws Error if a given parameter is out of range whatever the model's defaults are.
  void validate() const;

  static bool is_field(std::string_view name);
  static std::vector<std::string> names();

 private:
  // None where the value asks for none. Throws Error, opening with `where`, for a malformed
  // constraint, or a second one.
  std::optional<StructuredOutput> constraint_from(std::string_view name, const Json& value,
                                                  std::string_view where,
                                                  std::string_view text) const;

  Json fields_ = Json::object();
  std::optional<StructuredOutput> constraint_;  // what the constraint's field asks for
};

// Adds an option for each sampling parameter but constraints: --top-p for top_p and so on. `fields`
// must outlive the app. Those named in `except` get none.
void add_sampling_options(CLI::App& app, SamplingFields& fields,
                          const std::vector<std::string_view>& except = {});

}  // namespace quire::cli
