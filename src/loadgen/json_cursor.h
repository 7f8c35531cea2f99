#pragma once
// Reads a JSON text from front to back without building anything: for reading a few fields of
// hundreds of thousands of small objects a second.
//
// Each call consumes one value and returns whether it was there; after the first false, nothing
// more may be read. Structure, strings and numbers are checked (RFC 8259), depth is bounded; UTF-8
// is not checked. Thread safety: one thread at a time. The text must outlive the cursor.
#include <cstdint>
#include <string>
#include <string_view>

namespace quire::loadgen {

class JsonCursor {
 public:
  static constexpr int kMaxDepth = 64;

  explicit JsonCursor(std::string_view text) : text_(text) {}

  // The first character of the next value, '\0' at the end: '{', '[', '"', a digit or '-', 't',
  // 'f', 'n'.
  char peek();

  // Calls `member(key)` for each member, which must read the value and return whether it could.
  // Keys are as written, with their escapes.
  template <typename Member>
  bool read_object(Member&& member) {
    if (!enter('{')) return false;
    if (take('}')) return leave();
    do {
      std::string_view key;
      if (!read_raw_string(key) || !take(':') || !member(key)) return false;
    } while (take(','));
    return take('}') && leave();
  }

  // Calls `item()` for each item, which must read it and return whether it could.
  template <typename Item>
  bool read_array(Item&& item) {
    if (!enter('[')) return false;
    if (take(']')) return leave();
    do {
      if (!item()) return false;
    } while (take(','));
    return take(']') && leave();
  }

  // The text between the quotes, with its escapes: see append_unescaped().
  bool read_raw_string(std::string_view& raw);
  // An integer that fits.
  bool read_integer(int64_t& value);
  bool skip_value();

  // Nothing but white space is left.
  bool at_end() { return peek() == '\0' && position_ == text_.size(); }

 private:
  bool take(char c);
  bool enter(char c) { return take(c) && ++depth_ <= kMaxDepth; }
  bool leave() {
    --depth_;
    return true;
  }
  bool skip_number();
  bool skip_digits();
  bool skip_word(std::string_view word);

  std::string_view text_;
  size_t position_ = 0;
  int depth_ = 0;
};

// Appends the text that a raw string of JsonCursor means, as UTF-8; half a surrogate pair becomes
// U+FFFD. `raw` must come from read_raw_string().
void append_unescaped(std::string_view raw, std::string& text);

}  // namespace quire::loadgen
