#pragma once
// The parser's position and its two halves: expressions (expression_parser.cc) and statements
// (parser.cc).
#include <string>
#include <string_view>
#include <vector>

#include "chat/ast.h"
#include "chat/lexer.h"
#include "quire/chat_template.h"

namespace quire::chat_internal {

// The most arguments of a call and parameters of a macro.
inline constexpr std::size_t kMaxArguments = 255;

// The tokens and where the parser stands in them.
class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[at_]; }
  const Token& look() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  const Token& next() {
    const Token& token = tokens_[at_];
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  bool at(TokenKind kind) const { return current().kind == kind; }
  bool at_name(std::string_view name) const {
    return at(TokenKind::kName) && current().text == name;
  }
  bool at_op(std::string_view op) const { return at(TokenKind::kOperator) && current().text == op; }
  bool skip_name(std::string_view name) {
    if (!at_name(name)) return false;
    next();
    return true;
  }
  bool skip_op(std::string_view op) {
    if (!at_op(op)) return false;
    next();
    return true;
  }
  void expect_op(std::string_view op) {
    if (!skip_op(op)) fail_expected("'" + std::string(op) + "'");
  }
  void expect(TokenKind kind, std::string_view what) {
    if (!at(kind)) fail_expected(what);
    next();
  }
  std::string expect_name(std::string_view what) {
    if (!at(TokenKind::kName)) fail_expected(what);
    return next().text;
  }
  [[noreturn]] void fail(std::string_view message) const { fail_at(current().line, message); }
  [[noreturn]] void fail_expected(std::string_view what) const;

 private:
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
};

class ExpressionParser {
 public:
  ExpressionParser(TokenStream& stream, int max_nesting)
      : stream_(stream), max_nesting_(max_nesting) {}

  ExprPtr parse_expression(bool with_conditional = true);
  // An expression or, with commas, a tuple. `end_name` also ends it ("recursive" of a for).
  ExprPtr parse_tuple(bool with_conditional = true, std::string_view end_name = {},
                      bool in_parentheses = false);
  // Filters at the stream's place, applied to `subject` (null: the text of a block).
  ExprPtr parse_filters(ExprPtr subject, bool starts_inline);

  // One level of nested source, for a scope.
  class Nesting {
   public:
    explicit Nesting(ExpressionParser& parser);
    ~Nesting() { --parser_.nesting_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    ExpressionParser& parser_;
  };

  // The macros being parsed, innermost last; names their bodies read are noted there.
  std::vector<MacroNode*> open_macros;
  // How many {% if %} are open: inside one, unknown filters are errors only where they are reached.
  int open_ifs = 0;

 private:
  ExprPtr parse_conditional();
  ExprPtr parse_or();
  ExprPtr parse_and();
  ExprPtr parse_not();
  ExprPtr parse_compare();
  ExprPtr parse_sum();
  ExprPtr parse_concat();
  ExprPtr parse_product();
  ExprPtr parse_power();
  ExprPtr parse_unary(bool with_filters = true);
  ExprPtr parse_primary();
  ExprPtr parse_name();
  ExprPtr parse_string();
  ExprPtr parse_list();
  ExprPtr parse_dict();
  ExprPtr parse_postfix(ExprPtr node);
  ExprPtr parse_filters_and_tests(ExprPtr node);
  ExprPtr parse_subscript(ExprPtr node);
  ExprPtr parse_subscript_part();
  ExprPtr parse_call(ExprPtr node);
  ExprPtr parse_filter(ExprPtr subject);
  ExprPtr parse_test(ExprPtr subject);
  bool at_test_argument() const;
  CallExprs parse_arguments();
  void parse_argument(CallExprs& call);
  std::string parse_dotted_name(std::string_view what);

  void reject_unknown();

  ExprPtr make(ExprKind kind, int line, std::string name = {}) const;
  ExprPtr make_constant(int line, Value value) const;
  // Appends a child and keeps the depth right.
  void adopt(Expr& parent, ExprPtr child) const;
  void deepen(Expr& parent, const ExprPtr& child) const;
  void adopt_call(Expr& parent, CallExprs call) const;

  TokenStream& stream_;
  int max_nesting_;
  int nesting_ = 0;
  int open_expressions_ = 0;
  // Lines and messages of unknown filters and tests outside of every inline if.
  std::vector<std::pair<int, std::string>> unknown_;
};

}  // namespace quire::chat_internal
