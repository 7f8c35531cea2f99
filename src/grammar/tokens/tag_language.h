#pragma once
// Texts with tags in them, as structured_output.h describes: free text in which a trigger begins a
// tag, or tags alone, one behind the other.
//
//   make_tags({.tags = {{"<call>{\"name\": \"add\", \"arguments\": ", schema_of_add, "}</call>"}},
//              .triggers = {"<call>"}});
//
// With triggers, text behind `max_tags` tags ends. Free text is UTF-8. What a begin, an inner text
// and an end share is told apart by following all that are possible.
//
// Thread safety: as language.h says.
#include <cstdint>
#include <string>
#include <vector>

#include "grammar/tokens/language.h"

namespace quire::grammar {

struct Tag {
  std::string begin;
  LanguagePtr inner;
  std::string end;
};

struct TagOptions {
  std::vector<Tag> tags{};
  std::vector<std::string> triggers{};  // without them there is no free text
  std::string separator{};              // between tags without free text
  uint32_t min_tags = 0;
  uint32_t max_tags = UINT32_MAX;
};

// Throws Error for a tag without a trigger or that can be empty, triggers without tags or within
// each other, texts that are no UTF-8, and counts that cannot be.
LanguagePtr make_tags(TagOptions options, const CompileLimits& limits = {});

}  // namespace quire::grammar
