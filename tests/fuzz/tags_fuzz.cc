// A text of structural tags, taken from their masks: lines of a letter and what it says (t: a tag's
// begin, expression and end, with tabs between them; g: a trigger; s: the separator; n: two digits,
// the fewest tags and the most, 0 for any number), and a last line of bytes that say which of the
// allowed tokens come. What is written has to be what a reader that tries all ways takes.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "follow_masks.h"
#include "grammar/tokens/tag_reader_test_util.h"
#include "quire/error.h"

namespace {

using quire::grammar::PlainTag;
using quire::grammar::PlainTags;
using quire::grammar::TagReader;

constexpr size_t kMaxTags = 6;
constexpr size_t kMaxTokens = 24;  // the reader tries all ways

// Takes the text up to a character, and the character.
std::string_view take_until(std::string_view& rest, char end) {
  const size_t size = std::min(rest.find(end), rest.size());
  const std::string_view taken = rest.substr(0, size);
  rest.remove_prefix(std::min(size + 1, rest.size()));
  return taken;
}

std::optional<PlainTags> read_tags(std::string_view lines) {
  PlainTags tags;
  while (!lines.empty()) {
    std::string_view line = take_until(lines, '\n');
    if (line.empty()) return std::nullopt;
    const char kind = line.front();
    line.remove_prefix(1);
    if (kind == 't' && tags.tags.size() < kMaxTags) {
      PlainTag tag;
      tag.begin = take_until(line, '\t');
      tag.inner = take_until(line, '\t');
      tag.end = line;
      tags.tags.push_back(std::move(tag));
    } else if (kind == 'g' && tags.triggers.size() < kMaxTags) {
      tags.triggers.emplace_back(line);
    } else if (kind == 's') {
      tags.separator = line;
    } else if (kind == 'n' && line.size() == 2) {
      tags.min_tags = static_cast<uint8_t>(line[0] - '0') % 10U;
      const uint32_t most = static_cast<uint8_t>(line[1] - '0') % 10U;
      if (most > 0) tags.max_tags = most;
    } else {
      return std::nullopt;
    }
  }
  return tags;
}

class PlainReader {
 public:
  explicit PlainReader(const PlainTags& tags) : reader_(tags) {}

  bool advance(std::string_view bytes) {
    text_ += bytes;
    return true;
  }
  bool can_end() { return reader_.accepts(text_); }
  bool accepts(std::string_view text) { return reader_.accepts(text); }

 private:
  TagReader reader_;
  std::string text_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t end = input.rfind('\n');
  if (end == std::string_view::npos) return 0;
  const std::optional<PlainTags> tags = read_tags(input.substr(0, end));
  if (!tags) return 0;
  quire::grammar::LanguagePtr language;
  try {
    language = quire::grammar::language_of(*tags, quire::fuzz::mask_limits());
  } catch (const quire::Error&) {
    return 0;  // What is wrong with the tags has been said.
  }
  PlainReader reader(*tags);
  quire::fuzz::follow_masks(language, reader, input.substr(end + 1), kMaxTokens);
  return 0;
}
