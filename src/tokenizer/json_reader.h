#pragma once
// Reads JSON in one pass, straight into the caller's structures: a tokenizer.json has tens of
// megabytes of vocabulary and merges, and a start-up waits for them. The small parts are cut out
// with raw_value() and given to a JSON library.
//
// One thread at a time. The text must outlive the reader. Errors: quire::Error with the file's name
// and the byte offset. Nesting is bounded by kMaxDepth.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace quire::tokenizer_internal {

class JsonReader {
 public:
  static constexpr int kMaxDepth = 64;

  // `name` is what messages call the text. Throws Error when `text` is no valid UTF-8.
  JsonReader(std::string_view text, std::string name);

  // Calls visit(key) for each member of the object that comes next; visit must read the value. The
  // key lives until the next call on this reader.
  template <typename Visit>
  void read_object(Visit visit) {
    expect('{');
    if (take('}')) return;
    std::string scratch;
    do {
      const std::string_view key = read_string(scratch);
      expect(':');
      visit(key);
    } while (take(','));
    expect('}');
  }

  // Calls visit() for each element of the array that comes next; visit must read the element.
  template <typename Visit>
  void read_array(Visit visit) {
    expect('[');
    if (take(']')) return;
    do {
      visit();
    } while (take(','));
    expect(']');
  }

  // The string that comes next: a view into the text where it has no escapes, else into `scratch`.
  std::string_view read_string(std::string& scratch);

  // The integer that comes next, which must lie in 0..max.
  std::int64_t read_integer(std::int64_t max);

  // The value that comes next, as it is written. Checks that its brackets match and its nesting is
  // bounded, no more.
  std::string_view raw_value();

  // The first character of what comes next ('{', '[', '"', ...); 0 at the end of the text.
  char peek();

  // Throws unless nothing but white space is left.
  void expect_end();

  // The offset of what comes next, in bytes.
  std::size_t at() const { return at_; }

  [[noreturn]] void fail(std::string_view what) const { fail_at(at_, what); }
  [[noreturn]] void fail_at(std::size_t at, std::string_view what) const;

 private:
  void skip_space();
  bool take(char c);
  void expect(char c);
  void skip_string();
  char32_t read_hex4();
  void read_escape(std::string& out);

  std::string_view text_;
  std::string name_;
  std::size_t at_ = 0;
};

}  // namespace quire::tokenizer_internal
