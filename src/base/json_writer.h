#pragma once
// Writes JSON as text, value by value, without building a tree of it first.
//
//   JsonWriter json(out);
//   json.begin_object().member("count", 2).key("ids").begin_array().value(7).value(9).end_array();
//   json.end_object();                                        // {"count":2,"ids":[7,9]}
//
// The text is one line, byte for byte what nlohmann's dump() gives for the same tree with
// error_handler_t::replace. The writer only appends: between two calls the caller may take what
// `out` holds, so a document of any size passes through a small buffer.
//
// Calls that would not make JSON (a value where a key has to stand, an end that does not match, a
// second document) are programmer errors. If an append throws, the document cannot be continued.
//
// Thread safety: one thread at a time.
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace quire {

// Appends `text` as it stands between the quotes of a JSON string. Invalid UTF-8 becomes U+FFFD,
// one for each maximal part of a character (Unicode 15, 3.9).
void append_json_escaped(std::string& out, std::string_view text);

class JsonWriter {
 public:
  static constexpr int kMaxDepth = 63;  // of objects and arrays within each other

  // `out` must outlive it, and may hold text already.
  explicit JsonWriter(std::string& out) : out_(out) {}
  JsonWriter(const JsonWriter&) = delete;
  JsonWriter& operator=(const JsonWriter&) = delete;

  JsonWriter& begin_object() { return open(/*object=*/true); }
  JsonWriter& end_object() { return close(/*object=*/true); }
  JsonWriter& begin_array() { return open(/*object=*/false); }
  JsonWriter& end_array() { return close(/*object=*/false); }
  // The name of the value that comes next. The caller sees to it that no name is given twice.
  JsonWriter& key(std::string_view name);

  JsonWriter& null();
  JsonWriter& value(bool value);
  // Digits that read back as the same number, with ".0" for whole numbers; null for infinities and
  // NaN.
  JsonWriter& value(double value);
  JsonWriter& value(std::string_view text);
  JsonWriter& value(const std::string& text) { return value(std::string_view(text)); }
  JsonWriter& value(const char* text) { return value(std::string_view(text)); }
  template <std::signed_integral T>
  JsonWriter& value(T number) {
    return integer(number);
  }
  template <std::unsigned_integral T>
  JsonWriter& value(T number) {
    return unsigned_integer(number);
  }

  template <typename T>
  JsonWriter& member(std::string_view name, const T& given) {
    return key(name).value(given);
  }
  JsonWriter& null_member(std::string_view name) { return key(name).null(); }
  // An array of all that `values` holds.
  template <typename Range>
  JsonWriter& values(const Range& values) {
    begin_array();
    for (const auto& item : values) value(item);
    return end_array();
  }

  // Whether a whole document has been written.
  bool complete() const { return depth_ == 0 && begun(); }

 private:
  JsonWriter& open(bool object);
  JsonWriter& close(bool object);
  JsonWriter& integer(int64_t number);
  JsonWriter& unsigned_integer(uint64_t number);
  // What stands in front of a value where it comes next; checks that one may.
  void begin_value();
  bool begun() const { return (has_items_ & 1) != 0; }
  bool in_object() const { return depth_ > 0 && (is_object_ >> (depth_ - 1) & 1) != 0; }

  std::string& out_;
  int depth_ = 0;           // of objects and arrays that are open
  uint64_t is_object_ = 0;  // bit i: whether the open one at depth i + 1 is an object
  // Bit 0: the document has begun; bit i: the open one at depth i has a member or an item.
  uint64_t has_items_ = 0;
  bool after_key_ = false;  // its value has to come next
};

}  // namespace quire
