#pragma once
// Cuts a template into tokens, with Jinja's whitespace rules as Hugging Face sets them:
// trim_blocks, lstrip_blocks, and one newline at the end of the source dropped.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quire::chat_internal {

enum class TokenKind {
  kData,           // text between tags
  kVariableBegin,  // {{
  kVariableEnd,    // }}
  kBlockBegin,     // {%
  kBlockEnd,       // %}
  kName,
  kString,    // text: the unescaped value
  kInteger,   // integer
  kFloat,     // number
  kOperator,  // text: the operator as written
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  int line = 1;
  std::string text;
  std::int64_t integer = 0;
  double number = 0;
};

// The tokens of `source`, valid UTF-8, ending with one kEnd. Throws Error naming the line.
std::vector<Token> tokenize(std::string_view source);

// The Error "Chat template, line N: message".
[[noreturn]] void fail_at(int line, std::string_view message);

}  // namespace quire::chat_internal
