#pragma once
// Values within a JSON text, found without reading it into memory: where a value's own text counts,
// such as the digits of its numbers or keys that are given twice.
//
//   RawJson(R"({"a": {"b": [1.0, 2]}})").find("a").find("b").text()  // [1.0, 2]
//
// Thread safety: immutable.
#include <string_view>
#include <vector>

namespace quire {

class RawJson {
 public:
  // Of a value that is not there, or whose text is not known.
  RawJson() = default;
  // `text` is one JSON value, which parse_json_text() has read, and outlives this.
  explicit RawJson(std::string_view text);

  bool is_known() const { return !text_.empty(); }
  std::string_view text() const { return text_; }

  // The value of the last member of that name; not known where this is no object with one. Time is
  // linear in the text.
  RawJson find(std::string_view name) const;
  // Of an array; else empty. Time is linear in the text.
  std::vector<RawJson> items() const;

 private:
  std::string_view text_;  // without white space around it
};

}  // namespace quire
