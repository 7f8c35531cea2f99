#include "chat/json_value.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "chat/text.h"
#include "quire/error.h"

namespace quire::chat_internal {
namespace {

bool is_plain_word(const nlohmann::ordered_json& json) {
  if (!json.is_string()) return false;
  const auto& text = json.get_ref<const std::string&>();
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  });
}

// Deeper JSON than any tool schema; bounds the recursion below.
constexpr int kMaxJsonDepth = 200;
// The depth of a message in the list of messages.
constexpr int kMessageDepth = 1;

class Converter {
 public:
  Converter(Runtime& runtime, std::string_view where, Origin origin)
      : runtime_(runtime), path_(where), origin_(origin) {}

  Value convert(const nlohmann::ordered_json& json, int depth) {
    if (depth > kMaxJsonDepth) {
      fail("is nested more than " + std::to_string(kMaxJsonDepth) + " deep");
    }
    switch (json.type()) {
      case nlohmann::ordered_json::value_t::null:
        return Value::none();
      case nlohmann::ordered_json::value_t::boolean:
        return Value::boolean(json.get<bool>());
      case nlohmann::ordered_json::value_t::number_integer:
        return Value::integer(json.get<std::int64_t>());
      case nlohmann::ordered_json::value_t::number_unsigned:
        return convert_unsigned(json);
      case nlohmann::ordered_json::value_t::number_float:
        return Value::number(json.get<double>());
      case nlohmann::ordered_json::value_t::string:
        return convert_string(json);
      case nlohmann::ordered_json::value_t::array:
        return convert_array(json, depth);
      case nlohmann::ordered_json::value_t::object:
        return convert_object(json, depth);
      default:
        fail("holds binary data; expected JSON");
    }
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error("The chat's " + path_ + " " + what + ".");
  }

  Value convert_unsigned(const nlohmann::ordered_json& json) const {
    const auto value = json.get<std::uint64_t>();
    // An integer that is too large becomes a float, as even larger ones do in JSON's parser.
    if (value > INT64_MAX) return Value::number(static_cast<double>(value));
    return Value::integer(static_cast<std::int64_t>(value));
  }

  Value checked_string(const std::string& text) {
    const std::size_t invalid = find_invalid_utf8(text);
    if (invalid != std::string::npos) {
      fail("is not valid UTF-8 at byte " + std::to_string(invalid));
    }
    return make_string(&runtime_, MarkedText(text, origin_ == Origin::kChat));
  }

  Value convert_string(const nlohmann::ordered_json& json) {
    return checked_string(json.get_ref<const std::string&>());
  }

  Value convert_array(const nlohmann::ordered_json& json, int depth) {
    Items items;
    items.reserve(json.size());
    const std::size_t length = path_.size();
    for (std::size_t i = 0; i < json.size(); ++i) {
      path_ += "[" + std::to_string(i) + "]";
      items.push_back(convert(json[i], depth + 1));
      path_.resize(length);
    }
    return make_list(&runtime_, std::move(items));
  }

  Value convert_object(const nlohmann::ordered_json& json, int depth) {
    DictBuilder dict(runtime_);
    const std::size_t length = path_.size();
    for (const auto& [key, value] : json.items()) {
      // Keys may be long or broken: the path in messages stays short and valid.
      const bool is_plain = key.size() <= 64 && find_invalid_utf8(key) == std::string::npos;
      path_ += is_plain ? "." + key : ".(a key)";
      const Value name = checked_string(key);
      const bool is_role = depth == kMessageDepth && key == "role" && is_plain_word(value);
      const Origin outer = origin_;
      if (is_role) origin_ = Origin::kTemplate;
      dict.set(name, convert(value, depth + 1));
      origin_ = outer;
      path_.resize(length);
    }
    return dict.take();
  }

  Runtime& runtime_;
  std::string path_;
  Origin origin_;
};

}  // namespace

Value json_to_value(Runtime& runtime, const nlohmann::ordered_json& json, std::string_view where,
                    Origin origin) {
  return Converter(runtime, where, origin).convert(json, 0);
}

}  // namespace quire::chat_internal
