#pragma once
// The fields of unchecked JSON files, with their types.
//
// Every message names the file and the field, shows the value found and says what was expected.
// Thread safety: plain values and free functions; a JsonFields refers to its JSON and outlives it
// not.
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quire::loader_internal {

// A value as a message shows it: on one line and cut to a readable length.
std::string shown(const nlohmann::ordered_json& value);
std::string shown(const std::string& text);

// The fields of one object. A field that is null counts as missing; a getter returns nothing for a
// missing field and throws Error for one of another type or outside the range given.
class JsonFields {
 public:
  // `prefix` stands before the fields' names in messages: "rope_scaling.".
  JsonFields(const nlohmann::ordered_json& object, std::string file, std::string prefix = "")
      : object_(object), file_(std::move(file)), prefix_(std::move(prefix)) {}

  bool has(const char* field) const { return find(field) != nullptr; }
  // The key is there, if only as null.
  bool mentions(const char* field) const;
  // All keys that are there, those of nulls too.
  std::vector<std::string> names() const;
  // Nothing where it is missing or null.
  const nlohmann::ordered_json* find(const char* field) const;

  std::optional<int64_t> integer(const char* field, int64_t min, int64_t max) const;
  std::optional<double> number(const char* field, double min, double max) const;
  std::optional<bool> boolean(const char* field) const;
  std::optional<std::string> string(const char* field) const;
  std::optional<std::vector<std::string>> strings(const char* field) const;
  // An integer or a list of them.
  std::optional<std::vector<int64_t>> integers(const char* field, int64_t min, int64_t max) const;
  std::optional<std::vector<double>> numbers(const char* field, double min, double max) const;
  std::optional<JsonFields> object(const char* field) const;

  int64_t required_integer(const char* field, int64_t min, int64_t max) const;

  const std::string& file() const { return file_; }
  std::string name_of(const char* field) const { return prefix_ + field; }
  // "config.json: the field X <what>."
  [[noreturn]] void fail(const char* field, std::string_view what) const;
  // "config.json: the field X is <value>; expected <expected>."
  [[noreturn]] void fail_value(const char* field, std::string_view expected) const;

 private:
  // `value` is the field's, or an item of it.
  double checked_number(const nlohmann::ordered_json& value, const char* field, double min,
                        double max) const;
  int64_t checked_integer(const nlohmann::ordered_json& value, const char* field, int64_t min,
                          int64_t max) const;

  const nlohmann::ordered_json& object_;
  std::string file_;
  std::string prefix_;
};

}  // namespace quire::loader_internal
