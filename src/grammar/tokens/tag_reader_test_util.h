#pragma once
// What a text with tags is, tried in all ways: the oracle of TagLanguage's tests and fuzz target.
//
// Thread safety: one thread at a time.
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "grammar/grammar.h"
#include "grammar/tokens/tag_language.h"

namespace quire::grammar {

struct PlainTag {
  std::string begin;
  std::string inner;  // an expression
  std::string end;
};
struct PlainTags {
  std::vector<PlainTag> tags{};
  std::vector<std::string> triggers{};
  std::string separator{};
  uint32_t min_tags = 0;
  uint32_t max_tags = UINT32_MAX;
};

inline LanguagePtr language_of(const PlainTags& plain, const CompileLimits& limits = {}) {
  TagOptions options{.triggers = plain.triggers,
                     .separator = plain.separator,
                     .min_tags = plain.min_tags,
                     .max_tags = plain.max_tags};
  for (const PlainTag& tag : plain.tags) {
    options.tags.push_back(
        {tag.begin, make_language(compile_regex(tag.inner, limits), {}, limits), tag.end});
  }
  return make_tags(std::move(options), limits);
}

class TagReader {
 public:
  explicit TagReader(PlainTags plain) : plain_(std::move(plain)) {
    for (const PlainTag& tag : plain_.tags) inner_.push_back(compile_regex(tag.inner));
  }

  bool accepts(std::string_view text) {
    known_.clear();
    if (!plain_.triggers.empty()) return read(Part::kFreeText, text, 0);
    return (text.empty() && plain_.min_tags == 0) || read(Part::kTags, text, 0);
  }

 private:
  enum class Part : uint8_t { kBehind, kFreeText, kTags };

  // Whether the rest of a text, behind so many tags, is right. Each rest is read once.
  bool read(Part part, std::string_view rest, uint32_t count) {
    const std::tuple key(part, rest.size(), count);
    if (const auto found = known_.find(key); found != known_.end()) return found->second;
    const bool is_right = part == Part::kBehind     ? behind(rest, count)
                          : part == Part::kFreeText ? free_text(rest, count)
                                                    : tags(rest, count);
    return known_[key] = is_right;
  }
  bool behind(std::string_view text, uint32_t count) {
    if (text.empty() && count >= plain_.min_tags) return true;
    if (count == plain_.max_tags) return false;
    if (!plain_.triggers.empty()) return read(Part::kFreeText, text, count);
    return text.starts_with(plain_.separator) &&
           read(Part::kTags, text.substr(plain_.separator.size()), count);
  }
  bool free_text(std::string_view text, uint32_t count) {
    size_t end = std::string_view::npos;
    std::string_view trigger;
    for (const std::string& one : plain_.triggers) {
      const size_t at = text.find(one);
      if (at == std::string_view::npos || at + one.size() >= end) continue;
      end = at + one.size();
      trigger = one;
    }
    if (trigger.empty()) return count >= plain_.min_tags && grammar::accepts(utf8_, text);
    const std::string_view before = text.substr(0, end - trigger.size());
    return grammar::accepts(utf8_, before) && read(Part::kTags, text.substr(before.size()), count);
  }
  bool tags(std::string_view text, uint32_t count) {
    for (size_t i = 0; i < inner_.size(); ++i) {
      const PlainTag& tag = plain_.tags[i];
      if (!text.starts_with(tag.begin)) continue;
      const std::string_view rest = text.substr(tag.begin.size());
      for (size_t length = 0; length <= rest.size(); ++length) {
        if (rest.substr(length).starts_with(tag.end) &&
            grammar::accepts(inner_[i], rest.substr(0, length)) &&
            read(Part::kBehind, rest.substr(length + tag.end.size()), count + 1)) {
          return true;
        }
      }
    }
    return false;
  }

  PlainTags plain_;
  std::vector<GrammarPtr> inner_;
  GrammarPtr utf8_ = compile_regex("[^]*");
  std::map<std::tuple<Part, size_t, uint32_t>, bool> known_;
};

}  // namespace quire::grammar
