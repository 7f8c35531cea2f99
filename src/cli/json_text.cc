#include "cli/json_text.h"

#include <fmt/format.h>

#include <istream>
#include <limits>
#include <set>

#include "quire/error.h"

namespace quire::cli {
namespace {

// Watches a parse and stops it where the value goes beyond what is accepted.
class ParseGuard {
 public:
  explicit ParseGuard(std::string_view where) : where_(where) {}

  bool operator()(int depth, Json::parse_event_t event, const Json& parsed) {
    using Event = Json::parse_event_t;
    if (event == Event::object_start || event == Event::array_start) {
      if (depth >= kMaxJsonDepth) {
        throw Error(
            fmt::format("{}: the JSON is nested deeper than {} levels", where_, kMaxJsonDepth));
      }
      keys_.emplace_back();
    } else if (event == Event::object_end || event == Event::array_end) {
      keys_.pop_back();
    } else if (event == Event::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!keys_.back().insert(key).second) {
        throw Error(fmt::format("{}: the field {} is given twice", where_, to_line(key)));
      }
    }
    return true;
  }

 private:
  std::string where_;
  std::vector<std::set<std::string>> keys_;
};

// The parser's own message is "[json.exception.parse_error.101] parse error at line 1, column 5:
// ...".
std::string parser_message(const nlohmann::json::exception& error) {
  std::string message = error.what();
  const size_t end = message.find("] ");
  if (end != std::string::npos) message.erase(0, end + 2);
  return message;
}

}  // namespace

Json parse_json(std::string_view text, std::string_view where) {
  ParseGuard guard(where);
  try {
    return Json::parse(text, std::ref(guard));
  } catch (const nlohmann::json::exception& error) {
    throw Error(fmt::format("{}: not valid JSON: {}", where, parser_message(error)));
  }
}

Json parse_json_object(std::string_view text, std::string_view where) {
  Json value = parse_json(text, where);
  if (!value.is_object()) {
    throw Error(fmt::format("{}: expected a JSON object, got {}", where, json_kind(value)));
  }
  return value;
}

std::string json_kind(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::object:
      return "an object";
    case Json::value_t::array:
      return "an array";
    case Json::value_t::string:
      return "a string";
    case Json::value_t::boolean:
      return value.get<bool>() ? "true" : "false";
    default:
      return value.dump();
  }
}

std::vector<int32_t> token_ids_from_json(const Json& value, std::string_view where) {
  if (!value.is_array()) {
    throw Error(fmt::format("{}: expected an array of token ids, got {}", where, json_kind(value)));
  }
  std::vector<int32_t> ids;
  ids.reserve(value.size());
  for (const Json& item : value) {
    const bool fits =
        item.is_number_integer() &&
        (!item.is_number_unsigned() ||
         item.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int32_t>::max())) &&
        item.get<int64_t>() >= 0;
    if (!fits) {
      throw Error(fmt::format("{}[{}]: expected a token id, an integer of at least 0, got {}",
                              where, ids.size(), json_kind(item)));
    }
    ids.push_back(item.get<int32_t>());
  }
  return ids;
}

std::string to_line(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<std::string> read_line(std::istream& in, std::string_view where) {
  std::string line;
  if (std::streambuf* buffer = in.rdbuf(); buffer != nullptr) {
    for (int c = buffer->sbumpc(); c != std::streambuf::traits_type::eof(); c = buffer->sbumpc()) {
      if (c == '\n') return line;
      if (line.size() >= kMaxLineBytes) {
        throw Error(fmt::format("{}: the line is longer than {} MiB", where, kMaxLineBytes >> 20));
      }
      line.push_back(static_cast<char>(c));
    }
  }
  if (line.empty()) return std::nullopt;
  return line;
}

}  // namespace quire::cli
