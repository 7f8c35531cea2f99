#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "base/utf8.h"
#include "server/api/json_schema_node.h"

namespace quire::server {
namespace {

using Node = JsonSchemas::Node;

struct Step {
  std::string name{};             // of a property
  std::optional<size_t> index{};  // of an array's item
};

// The first thing wrong with a value.
struct Failure {
  std::vector<Step> path{};
  std::string message{};    // goes on after the path: "is 5, but must be a string"
  uint8_t other_types = 0;  // where the type alone is wrong: those that were allowed
  std::vector<std::string> type_names{};
  bool final = false;  // the message is a whole sentence, x-error's
};

std::string to_text(const std::vector<Step>& path) {
  std::string text;
  for (const Step& step : path) {
    if (step.index) {
      text += fmt::format("[{}]", *step.index);
    } else {
      if (!text.empty()) text += '.';
      text += step.name;
    }
  }
  return text;
}

std::string shown(const Json& value) {
  constexpr size_t kMaxShown = 64;
  if (value.is_object()) return value.empty() ? "an empty object" : "an object";
  if (value.is_array()) {
    return value.empty() ? "an empty array" : fmt::format("an array of {}", value.size());
  }
  if (value.is_string() && value.get_ref<const std::string&>().size() > kMaxShown) {
    return fmt::format("a string of {} characters",
                       num_characters(value.get_ref<const std::string&>()));
  }
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string shown_type(std::string_view name) {
  if (name == "null") return "null";
  if (name == "boolean") return "true or false";
  const bool vowel = name == "integer" || name == "array" || name == "object";
  return fmt::format("{} {}", vowel ? "an" : "a", name);
}

std::string joined_with_or(const std::vector<std::string>& words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += i + 1 == words.size() ? " or " : ", ";
    text += words[i];
  }
  return text;
}

std::string shown_types(const std::vector<std::string>& names) {
  std::vector<std::string> words;
  for (const std::string& name : names) {
    const std::string word = shown_type(name);
    if (std::find(words.begin(), words.end(), word) == words.end()) words.push_back(word);
  }
  return joined_with_or(words);
}

// Holds every 64-bit integer and every double.
long double exact(const Json& number) {
  if (number.is_number_unsigned()) return static_cast<long double>(number.get<uint64_t>());
  if (number.is_number_integer()) return static_cast<long double>(number.get<int64_t>());
  return static_cast<long double>(number.get<double>());
}

bool equal(const Json& a, const Json& b) {
  return a.is_number() && b.is_number() ? exact(a) == exact(b) : a == b;
}

class Checker {
 public:
  // True if `value` fulfils `node`; else failure() says why not.
  bool check(const Node& node, const Json& value) {
    const size_t depth = path_.size();
    if (check_type(node, value) && check_choices(node, value) && check_kind(node, value) &&
        check_combinations(node, value)) {
      return true;
    }
    path_.resize(depth);
    if (node.error) {
      failure_.message = *node.error;
      failure_.final = true;
      failure_.other_types = 0;
      failure_.path = path_;
      if (node.param) failure_.path.push_back({*node.param, std::nullopt});
    }
    return false;
  }

  const Failure& failure() const { return failure_; }

 private:
  bool fail(const Json& value, const std::string& expected) {
    failure_ = {};
    failure_.path = path_;
    failure_.message = fmt::format("is {}, but must {}", shown(value), expected);
    return false;
  }

  bool check_type(const Node& node, const Json& value) {
    if ((type_of(value) & node.types) != 0) return true;
    fail(value, "be " + shown_types(node.type_names));
    failure_.other_types = node.types;
    failure_.type_names = node.type_names;
    return false;
  }

  bool check_choices(const Node& node, const Json& value) {
    if (node.constant && !equal(*node.constant, value)) {
      return fail(value, "be " + shown(*node.constant));
    }
    if (!node.choices) return true;
    std::vector<std::string> words;
    for (const Json& choice : *node.choices) {
      if (equal(choice, value)) return true;
      words.push_back(shown(choice));
    }
    return fail(value, "be " + joined_with_or(words));
  }

  bool check_kind(const Node& node, const Json& value) {
    switch (value.type()) {
      case Json::value_t::string:
        return check_string(node, value);
      case Json::value_t::array:
        return check_array(node, value);
      case Json::value_t::object:
        return check_object(node, value);
      default:
        return !value.is_number() || check_number(node, value);
    }
  }

  bool check_number(const Node& node, const Json& value) {
    const long double number = exact(value);
    if (node.minimum && !(number >= exact(*node.minimum))) {
      return fail(value, "be at least " + shown(*node.minimum));
    }
    if (node.maximum && !(number <= exact(*node.maximum))) {
      return fail(value, "be at most " + shown(*node.maximum));
    }
    if (node.exclusive_minimum && !(number > exact(*node.exclusive_minimum))) {
      return fail(value, "be greater than " + shown(*node.exclusive_minimum));
    }
    if (node.exclusive_maximum && !(number < exact(*node.exclusive_maximum))) {
      return fail(value, "be less than " + shown(*node.exclusive_maximum));
    }
    return true;
  }

  bool check_string(const Node& node, const Json& value) {
    if (!node.min_length && !node.max_length) return true;
    const auto& text = value.get_ref<const std::string&>();
    const size_t length = num_characters(text);
    if (node.min_length && length < *node.min_length) {
      return fail(value, fmt::format("have at least {} character{}", *node.min_length,
                                     *node.min_length == 1 ? "" : "s"));
    }
    if (node.max_length && length > *node.max_length) {
      return fail(value, *node.max_length == 0
                             ? std::string("be empty")
                             : fmt::format("have at most {} characters", *node.max_length));
    }
    if (node.pattern && !std::regex_search(text, *node.pattern)) {
      return fail(value, fmt::format("match {}", node.pattern_text));
    }
    return true;
  }

  bool check_array(const Node& node, const Json& value) {
    if (node.min_items && value.size() < *node.min_items) {
      return fail(value, fmt::format("have at least {} item{}", *node.min_items,
                                     *node.min_items == 1 ? "" : "s"));
    }
    if (node.max_items && value.size() > *node.max_items) {
      return fail(value, *node.max_items == 0
                             ? std::string("be empty")
                             : fmt::format("have at most {} items", *node.max_items));
    }
    if (node.items == nullptr) return true;
    for (size_t i = 0; i < value.size(); ++i) {
      path_.push_back({{}, i});
      if (!check(*node.items, value[i])) return false;
      path_.pop_back();
    }
    return true;
  }

  bool check_object(const Node& node, const Json& value) {
    if (node.min_properties && value.size() < *node.min_properties) {
      return fail(value, fmt::format("have at least {} fields", *node.min_properties));
    }
    if (node.max_properties && value.size() > *node.max_properties) {
      return fail(value, fmt::format("have at most {} fields", *node.max_properties));
    }
    for (const auto& [name, member] : value.items()) {
      if (!check_member(node, name, member)) return false;
    }
    // Last, so that a wrong value that is present is named before a member that is missing.
    for (const std::string& name : node.required) {
      if (value.contains(name)) continue;
      failure_ = {};
      failure_.path = path_;
      failure_.path.push_back({name, std::nullopt});
      failure_.message = "is missing";
      return false;
    }
    return true;
  }

  bool check_member(const Node& node, const std::string& name, const Json& member) {
    path_.push_back({name, std::nullopt});
    if (node.name_schema != nullptr && !check(*node.name_schema, Json(name))) {
      if (!failure_.final) failure_.message = "has a name that cannot be: it " + failure_.message;
      return false;
    }
    const auto found = node.properties.find(name);
    if (found != node.properties.end()) {
      if (!check(*found->second, member)) return false;
    } else if (!node.additional_allowed) {
      failure_ = {};
      failure_.path = path_;
      failure_.message = "is not known";
      return false;
    } else if (node.additional != nullptr && !check(*node.additional, member)) {
      return false;
    }
    path_.pop_back();
    return true;
  }

  bool check_combinations(const Node& node, const Json& value) {
    for (const Node* part : node.all_of) {
      if (!check(*part, value)) return false;
    }
    if (!node.any_of.empty() && count_matches(node.any_of, value, 1) == 0) return false;
    if (!node.one_of.empty()) {
      const size_t matches = count_matches(node.one_of, value, 2);
      if (matches == 0) return false;
      if (matches > 1) return fail(value, "match one alternative only");
    }
    if (node.negated != nullptr) {
      if (check(*node.negated, value)) return fail(value, "not be so");
    }
    return true;
  }

  // How many of `branches` `value` fulfils, up to `enough`. If it fulfils none, the failure is that
  // of the branch that was most likely meant.
  size_t count_matches(const std::vector<const Node*>& branches, const Json& value, size_t enough) {
    std::optional<Failure> best;
    uint8_t types = 0;
    std::vector<std::string> type_names;
    size_t matches = 0;
    for (const Node* branch : branches) {
      if (check(*branch, value)) {
        if (++matches == enough) return matches;
        continue;
      }
      const bool wrong_type = failure_.other_types != 0 && failure_.path.size() == path_.size();
      if (wrong_type) {
        types = static_cast<uint8_t>(types | failure_.other_types);
        type_names.insert(type_names.end(), failure_.type_names.begin(), failure_.type_names.end());
      } else if (!best || goes_further(failure_, *best)) {
        best = failure_;
      }
    }
    if (matches > 0) return matches;
    if (best) {
      failure_ = *best;
    } else {
      fail(value, "be " + shown_types(type_names));
      failure_.other_types = types;
      failure_.type_names = type_names;
    }
    return 0;
  }

  // Whether more of the value was right before failure `a` than before `b`; at the same place,
  // whether its type was right.
  static bool goes_further(const Failure& a, const Failure& b) {
    const size_t common = std::min(a.path.size(), b.path.size());
    for (size_t i = 0; i < common; ++i) {
      if (a.path[i].index != b.path[i].index) return a.path[i].index > b.path[i].index;
    }
    if (a.path.size() != b.path.size()) return a.path.size() > b.path.size();
    return a.other_types == 0 && b.other_types != 0;
  }

  std::vector<Step> path_;
  Failure failure_;
};

}  // namespace

TypeBit type_of(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return kNullType;
    case Json::value_t::boolean:
      return kBooleanType;
    case Json::value_t::string:
      return kStringType;
    case Json::value_t::array:
      return kArrayType;
    case Json::value_t::object:
      return kObjectType;
    case Json::value_t::number_float: {
      const double number = value.get<double>();
      return std::trunc(number) == number ? kIntegerType : kNumberType;
    }
    default:
      return kIntegerType;
  }
}

std::optional<SchemaViolation> check_node(const JsonSchemas::Node& node, const Json& value) {
  Checker checker;
  if (checker.check(node, value)) return std::nullopt;
  const Failure& failure = checker.failure();
  std::string path = to_text(failure.path);
  std::string message = failure.message;
  if (!failure.final) {
    message = fmt::format("{} {}.", path.empty() ? "The request body" : path, message);
  }
  return SchemaViolation{std::move(path), std::move(message)};
}

}  // namespace quire::server
