#pragma once
// What an answer has to be: JSON that a schema describes, a text that an expression matches, ...
//
// Thread safety: plain values.
#include <cstdint>
#include <string>
#include <vector>

namespace quire {

// A part of a text that is constrained: `begin`, JSON that `json_schema` describes, `end`.
struct StructuralTag {
  std::string begin;
  std::string json_schema;
  std::string end;
  bool operator==(const StructuralTag&) const = default;
};

struct StructuredOutput {
  enum class Kind : uint8_t {
    kJsonSchema,  // JSON that the schema `text` describes
    kJsonObject,  // any JSON object
    kRegex,       // what the regular expression `text` matches as a whole
    kGrammar,     // a text of the context-free grammar `text`, in GBNF, Lark's notation or EBNF
    kChoice,      // one of `choices`
    kTags         // text with `tags` in it
  };

  Kind kind = Kind::kJsonSchema;
  std::string text{};
  std::vector<std::string> choices{};

  // kTags: the answer is free text until it has one of `triggers`, with which one or more tags
  // begin; then one of these tags has to follow. Without triggers there are only tags, no free
  // text.
  std::vector<StructuralTag> tags{};
  std::vector<std::string> triggers{};
  std::string separator{};  // between tags that follow each other without free text
  uint32_t min_tags = 0;
  uint32_t max_tags = UINT32_MAX;

  // JSON has no white space between its tokens, whatever EngineConfig::structured_whitespace
  // allows.
  bool disable_any_whitespace = false;

  // The constraint begins behind the first occurrence of this text ("</think>"); empty: at once.
  std::string begins_after{};

  bool operator==(const StructuredOutput&) const = default;
};

}  // namespace quire
