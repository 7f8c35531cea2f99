// The parser's errors where it finds another token than it needs.
#include "chat/parser_state.h"

namespace quire::chat_internal {
namespace {

std::string describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kData:
      return "text";
    case TokenKind::kVariableBegin:
      return "'{{'";
    case TokenKind::kVariableEnd:
      return "'}}'";
    case TokenKind::kBlockBegin:
      return "'{%'";
    case TokenKind::kBlockEnd:
      return "'%}'";
    case TokenKind::kString:
      return "a string";
    case TokenKind::kEnd:
      return "the end of the template";
    default:
      return "'" + token.text + "'";
  }
}

}  // namespace

void TokenStream::fail_expected(std::string_view what) const {
  fail("expected " + std::string(what) + " but found " + describe(current()) + ".");
}

}  // namespace quire::chat_internal
