#include "cli/options/constraint_options.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "cli/json_lines.h"
#include "cli/options/option_helpers.h"
#include "cli/usage_error.h"

namespace quire::cli {
namespace {

constexpr std::string_view kField = "structured_outputs";
constexpr const char* kGroup = "What the output has to be (one of these)";

std::string file_text(const std::string& path, const std::string& option) {
  try {
    std::ifstream file = open_lines(path);
    std::string text(kMaxLineBytes + 1, '\0');
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<size_t>(file.gcount()));
    if (text.size() > kMaxLineBytes) {
      throw Error(fmt::format("{} is larger than {} MiB", path, kMaxLineBytes >> 20));
    }
    return text;
  } catch (const Error& error) {
    throw UsageError(fmt::format("{}: {}", option, error.what()));
  }
}

// A schema on the command line is an object.
std::string schema_text(const std::string& value, const std::string& option) {
  const size_t first = value.find_first_not_of(" \t\r\n");
  const bool is_schema = first != std::string::npos && value[first] == '{';
  return is_schema ? value : file_text(value, option);
}

// A grammar on the command line has a rule, and a name of a file that exists has none.
std::string grammar_text(const std::string& value, const std::string& option) {
  const bool is_grammar = value.find("::=") != std::string::npos ||
                          (value.find(':') != std::string::npos && !std::filesystem::exists(value));
  return is_grammar ? value : file_text(value, option);
}

std::string option_of(const std::string& name) {
  if (name == "json") return "--json-schema";
  return name == "json_object" ? "--json-object" : "--" + name;
}

void set_one(SamplingFields& fields, const std::string& option, const std::string& name,
             const Json& value) {
  Json given = fields.given().value(std::string(kField), Json::object());
  const bool is_list = value.is_array() && given.contains(name);
  if (!given.empty() && !is_list) {
    throw UsageError(
        given.contains(name)
            ? fmt::format("{} is given twice, but an output follows one constraint", option)
            : fmt::format("{} and {} are both given, but an output follows one constraint",
                          option_of(given.begin().key()), option));
  }
  if (is_list) {
    given[name].insert(given[name].end(), value.begin(), value.end());
  } else {
    given[name] = value;
  }
  try {
    fields.set(kField, given, option);
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

}  // namespace

void add_constraint_options(CLI::App& app, SamplingFields& fields) {
  add_repeatable(
      app,
      {"--json-schema", "FILE",
       "JSON of this schema; a value that begins with { is the schema itself [none]", kGroup},
      [&fields](const std::string& value) {
        set_one(fields, "--json-schema", "json", schema_text(value, "--json-schema"));
      });
  add_flag(app, {"--json-object", "", "Any JSON object", kGroup},
           [&fields] { set_one(fields, "--json-object", "json_object", true); });
  add_repeatable(
      app, {"--regex", "REGEX", "A text that matches as a whole [none]", kGroup},
      [&fields](const std::string& value) { set_one(fields, "--regex", "regex", value); });
  add_repeatable(
      app,
      {"--grammar", "FILE",
       "A text of this grammar; a value with rules in it is the grammar itself [none]", kGroup},
      [&fields](const std::string& value) {
        set_one(fields, "--grammar", "grammar", grammar_text(value, "--grammar"));
      });
  add_repeatable(app, {"--choice", "TEXT", "One of these texts; repeatable [none]", kGroup},
                 [&fields](const std::string& value) {
                   set_one(fields, "--choice", "choice", Json::array({value}));
                 });
}

}  // namespace quire::cli
