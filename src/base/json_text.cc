#include "base/json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace quire {
namespace {

using Json = nlohmann::ordered_json;

// Objects of more members than this find repeated keys by hash.
constexpr std::size_t kScannedMembers = 16;

// An ordered object is a vector that is looked up by key; here it is used as the vector.
using Members = Json::object_t::Container;

Members& members_of(Json& object) {
  return object.get_ref<Json::object_t&>();
}

// Makes room for one member more. A vector of pairs with constant keys would copy them with all
// that the members hold; here values are moved once nothing can fail any more.
void grow(Members& members) {
  if (members.size() < members.capacity()) return;
  constexpr std::size_t kLeast = 4;
  Members larger;
  larger.reserve(std::max(kLeast, 2 * members.size()));
  for (const auto& member : members) larger.emplace_back(member.first, nullptr);
  for (std::size_t i = 0; i < members.size(); ++i) larger[i].second.swap(members[i].second);
  members.swap(larger);
}

// The parser's own message is "[json.exception.parse_error.101] parse error at line 1, column 5:
// ...".
std::string parser_message(const nlohmann::json::exception& error) {
  std::string message = error.what();
  const std::size_t end = message.find("] ");
  if (end != std::string::npos) message.erase(0, end + 2);
  // It quotes what it read last, which may be most of the text.
  constexpr std::size_t kHead = 160;
  constexpr std::size_t kTail = 80;
  if (message.size() > kHead + kTail) {
    message.replace(kHead, message.size() - kHead - kTail, "[...]");
  }
  return message;
}

// Builds the value as the parser goes. nlohmann's own builder looks every key of an ordered object
// up by going through those before it, which makes one large object quadratic.
class Builder : public nlohmann::json_sax<Json> {
 public:
  explicit Builder(const JsonLimits& limits) : limits_(limits) {}
  ~Builder() override { clear_json(root_); }
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;

  Json take() { return std::move(root_); }
  std::optional<JsonError> take_error() { return std::move(error_); }

  bool null() override { return add(nullptr) != nullptr; }
  bool boolean(bool value) override { return add(value) != nullptr; }
  bool number_integer(number_integer_t value) override { return add(value) != nullptr; }
  bool number_unsigned(number_unsigned_t value) override { return add(value) != nullptr; }
  bool number_float(number_float_t value, const string_t&) override {
    return add(value) != nullptr;
  }
  bool string(string_t& value) override { return add(std::move(value)) != nullptr; }
  bool binary(binary_t&) override { return false; }  // JSON text has none

  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    Level& level = open_.back();
    Members& members = members_of(*level.value);
    level.member = find(level, members, name);
    if (!level.member) {
      if (members.size() > kScannedMembers) level.index.emplace(name, members.size());
      level.member = members.size();
      grow(members);
      members.emplace_back(std::move(name), nullptr);
      if (members.size() == kScannedMembers + 1) {
        for (std::size_t i = 0; i < members.size(); ++i) level.index.emplace(members[i].first, i);
      }
      return true;
    }
    if (limits_.allow_repeated_keys) return true;
    return fail(
        fmt::format("the field {} is given twice",
                    Json(name).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)));
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::json::exception& error) override {
    error_.emplace("not valid JSON: " + parser_message(error), position == 0 ? 0 : position - 1);
    return false;
  }

 private:
  struct Level {
    Json* value;
    std::optional<std::size_t> member;  // of an object: the one whose value comes next
    std::unordered_map<std::string, std::size_t> index;
  };

  static std::optional<std::size_t> find(const Level& level, const Members& members,
                                         const std::string& name) {
    if (members.size() > kScannedMembers) {
      const auto found = level.index.find(name);
      return found == level.index.end() ? std::nullopt : std::optional(found->second);
    }
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (members[i].first == name) return i;
    }
    return std::nullopt;
  }

  bool fail(const std::string& message) {
    error_.emplace(message);
    return false;
  }

  template <typename T>
  Json* add(T&& value) {
    if (++num_values_ > limits_.max_values) {
      fail(fmt::format("the JSON holds more than {} values", limits_.max_values));
      return nullptr;
    }
    Json* place = &root_;
    if (!open_.empty()) {
      Level& level = open_.back();
      if (level.value->is_array()) {
        place = &level.value->get_ref<Json::array_t&>().emplace_back();
      } else {
        place = &members_of(*level.value)[*level.member].second;
      }
    }
    *place = Json(std::forward<T>(value));
    return place;
  }

  bool open(Json value) {
    if (open_.size() >= static_cast<std::size_t>(limits_.max_depth)) {
      return fail(fmt::format("the JSON is nested deeper than {} levels", limits_.max_depth));
    }
    Json* place = add(std::move(value));
    if (place == nullptr) return false;
    open_.push_back({place, std::nullopt, {}});
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  JsonLimits limits_;
  Json root_;
  std::vector<Level> open_;
  std::size_t num_values_ = 0;
  std::optional<JsonError> error_;
};

}  // namespace

void clear_json(Json& value) noexcept {
  if (value.is_array()) {
    auto& items = value.get_ref<Json::array_t&>();
    for (; !items.empty(); items.pop_back()) clear_json(items.back());
  } else if (value.is_object()) {
    Members& members = members_of(value);
    for (; !members.empty(); members.pop_back()) clear_json(members.back().second);
  }
  value = nullptr;
}

void copy_json(const Json& from, Json& to) {
  clear_json(to);
  if (from.is_array()) {
    to = Json::array();
    auto& items = to.get_ref<Json::array_t&>();
    items.reserve(from.size());
    for (const Json& item : from) copy_json(item, items.emplace_back());
  } else if (from.is_object()) {
    to = Json::object();
    Members& members = members_of(to);
    members.reserve(from.size());
    for (const auto& [name, value] : from.get_ref<const Json::object_t&>()) {
      members.emplace_back(name, nullptr);
      copy_json(value, members.back().second);
    }
  } else {
    to = from;
  }
}

Json parse_json_text(std::string_view text, const JsonLimits& limits) {
  // The parser would take a NUL byte for the end of the text.
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos) {
    throw JsonError(fmt::format("not valid JSON: there is a NUL byte at offset {}", nul), nul);
  }
  Builder builder(limits);
  Json::sax_parse(text.begin(), text.end(), &builder);
  if (std::optional<JsonError> error = builder.take_error()) throw JsonError(*error);
  return builder.take();
}

Json parse_json_object(std::string_view text, std::string_view where, const JsonLimits& limits) {
  Json value;
  try {
    value = parse_json_text(text, limits);
  } catch (const JsonError& error) {
    throw Error(fmt::format("{}: {}", where, error.what()));
  }
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

}  // namespace quire
