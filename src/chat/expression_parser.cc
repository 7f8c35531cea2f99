#include <algorithm>

#include "chat/builtins.h"
#include "chat/parser_state.h"

namespace quire::chat_internal {
namespace {

// A chain like a + b + c ... is a deep tree too; it may be this many times deeper than brackets.
constexpr int kChainFactor = 4;

bool is_compare(const Token& token) {
  return token.kind == TokenKind::kOperator &&
         (token.text == "==" || token.text == "!=" || token.text == "<" || token.text == "<=" ||
          token.text == ">" || token.text == ">=");
}

}  // namespace

ExpressionParser::Nesting::Nesting(ExpressionParser& parser) : parser_(parser) {
  if (parser.nesting_ >= parser.max_nesting_) {
    parser.stream_.fail("blocks and brackets are nested more than " +
                        std::to_string(parser.max_nesting_) +
                        " deep (TemplateLimits::max_nesting).");
  }
  ++parser.nesting_;
}

ExprPtr ExpressionParser::make(ExprKind kind, int line, std::string name) const {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->line = line;
  expr->name = std::move(name);
  return expr;
}

ExprPtr ExpressionParser::make_constant(int line, Value value) const {
  auto expr = make(ExprKind::kConstant, line);
  expr->constant = std::move(value);
  return expr;
}

void ExpressionParser::deepen(Expr& parent, const ExprPtr& child) const {
  if (child == nullptr) return;
  parent.depth = std::max(parent.depth, child->depth + 1);
  if (parent.depth > max_nesting_ * kChainFactor) {
    fail_at(parent.line, "an expression has more than " +
                             std::to_string(max_nesting_ * kChainFactor) +
                             " operations in a row (4 x TemplateLimits::max_nesting).");
  }
}

void ExpressionParser::adopt(Expr& parent, ExprPtr child) const {
  deepen(parent, child);
  parent.children.push_back(std::move(child));
}

void ExpressionParser::adopt_call(Expr& parent, CallExprs call) const {
  for (const auto& argument : call.positional) deepen(parent, argument);
  for (const auto& keyword : call.keywords) deepen(parent, keyword.second);
  deepen(parent, call.star);
  deepen(parent, call.double_star);
  parent.call = std::move(call);
}

ExprPtr ExpressionParser::parse_expression(bool with_conditional) {
  const Nesting nesting(*this);
  ++open_expressions_;
  ExprPtr expr = with_conditional ? parse_conditional() : parse_or();
  --open_expressions_;
  reject_unknown();
  return expr;
}

ExprPtr ExpressionParser::parse_conditional() {
  const Nesting nesting(*this);
  const int line = stream_.current().line;
  const std::size_t known = unknown_.size();
  ExprPtr value = parse_or();
  while (stream_.skip_name("if")) {
    auto node = make(ExprKind::kConditional, line);
    adopt(*node, parse_or());
    adopt(*node, std::move(value));
    adopt(*node, stream_.skip_name("else") ? parse_conditional() : nullptr);
    value = std::move(node);
    unknown_.resize(known);
  }
  return value;
}

void ExpressionParser::reject_unknown() {
  if (open_ifs == 0 && open_expressions_ == 0 && !unknown_.empty()) {
    fail_at(unknown_[0].first, unknown_[0].second);
  }
  if (open_expressions_ == 0) unknown_.clear();
}

ExprPtr ExpressionParser::parse_or() {
  ExprPtr left = parse_and();
  while (stream_.at_name("or")) {
    auto node = make(ExprKind::kOr, stream_.next().line);
    adopt(*node, std::move(left));
    adopt(*node, parse_and());
    left = std::move(node);
  }
  return left;
}

ExprPtr ExpressionParser::parse_and() {
  ExprPtr left = parse_not();
  while (stream_.at_name("and")) {
    auto node = make(ExprKind::kAnd, stream_.next().line);
    adopt(*node, std::move(left));
    adopt(*node, parse_not());
    left = std::move(node);
  }
  return left;
}

ExprPtr ExpressionParser::parse_not() {
  if (!stream_.at_name("not")) return parse_compare();
  const Nesting nesting(*this);
  auto node = make(ExprKind::kUnary, stream_.next().line, "not");
  adopt(*node, parse_not());
  return node;
}

ExprPtr ExpressionParser::parse_compare() {
  const int line = stream_.current().line;
  auto node = make(ExprKind::kCompare, line);
  adopt(*node, parse_sum());
  while (true) {
    std::string op;
    if (is_compare(stream_.current())) {
      op = stream_.next().text;
    } else if (stream_.skip_name("in")) {
      op = "in";
    } else if (stream_.at_name("not") && stream_.look().kind == TokenKind::kName &&
               stream_.look().text == "in") {
      stream_.next();
      stream_.next();
      op = "not in";
    } else {
      break;
    }
    node->operators.push_back(std::move(op));
    adopt(*node, parse_sum());
  }
  return node->operators.empty() ? std::move(node->children[0]) : std::move(node);
}

ExprPtr ExpressionParser::parse_sum() {
  ExprPtr left = parse_concat();
  while (stream_.at_op("+") || stream_.at_op("-")) {
    const Token& op = stream_.next();
    auto node = make(ExprKind::kBinary, op.line, op.text);
    adopt(*node, std::move(left));
    adopt(*node, parse_concat());
    left = std::move(node);
  }
  return left;
}

ExprPtr ExpressionParser::parse_concat() {
  ExprPtr first = parse_product();
  if (!stream_.at_op("~")) return first;
  auto node = make(ExprKind::kConcat, stream_.current().line);
  adopt(*node, std::move(first));
  while (stream_.skip_op("~")) adopt(*node, parse_product());
  return node;
}

ExprPtr ExpressionParser::parse_product() {
  ExprPtr left = parse_power();
  while (stream_.at_op("*") || stream_.at_op("/") || stream_.at_op("//") || stream_.at_op("%")) {
    const Token& op = stream_.next();
    auto node = make(ExprKind::kBinary, op.line, op.text);
    adopt(*node, std::move(left));
    adopt(*node, parse_power());
    left = std::move(node);
  }
  return left;
}

// In Jinja, unlike Python, ** groups from the left and binds less than a sign.
ExprPtr ExpressionParser::parse_power() {
  ExprPtr left = parse_unary();
  while (stream_.at_op("**")) {
    auto node = make(ExprKind::kBinary, stream_.next().line, "**");
    adopt(*node, std::move(left));
    adopt(*node, parse_unary());
    left = std::move(node);
  }
  return left;
}

ExprPtr ExpressionParser::parse_unary(bool with_filters) {
  ExprPtr node;
  if (stream_.at_op("-") || stream_.at_op("+")) {
    const Nesting nesting(*this);
    const Token& op = stream_.next();
    node = make(ExprKind::kUnary, op.line, op.text);
    adopt(*node, parse_unary(false));
  } else {
    node = parse_primary();
  }
  node = parse_postfix(std::move(node));
  return with_filters ? parse_filters_and_tests(std::move(node)) : std::move(node);
}

ExprPtr ExpressionParser::parse_primary() {
  const Token& token = stream_.current();
  switch (token.kind) {
    case TokenKind::kName:
      return parse_name();
    case TokenKind::kString:
      return parse_string();
    case TokenKind::kInteger:
      stream_.next();
      return make_constant(token.line, Value::integer(token.integer));
    case TokenKind::kFloat:
      stream_.next();
      return make_constant(token.line, Value::number(token.number));
    default:
      break;
  }
  if (stream_.skip_op("(")) {
    ExprPtr inner = parse_tuple(true, {}, true);
    stream_.expect_op(")");
    return inner;
  }
  if (stream_.at_op("[")) return parse_list();
  if (stream_.at_op("{")) return parse_dict();
  stream_.fail_expected("an expression");
}

ExprPtr ExpressionParser::parse_name() {
  const Token& token = stream_.next();
  if (token.text == "true" || token.text == "True")
    return make_constant(token.line, Value::boolean(true));
  if (token.text == "false" || token.text == "False") {
    return make_constant(token.line, Value::boolean(false));
  }
  if (token.text == "none" || token.text == "None") return make_constant(token.line, Value::none());
  for (MacroNode* macro : open_macros) {
    macro->uses_varargs |= token.text == "varargs";
    macro->uses_kwargs |= token.text == "kwargs";
    macro->uses_caller |= token.text == "caller";
  }
  return make(ExprKind::kName, token.line, token.text);
}

ExprPtr ExpressionParser::parse_string() {
  const int line = stream_.current().line;
  std::string text;
  while (stream_.at(TokenKind::kString)) text += stream_.next().text;
  return make_constant(line, make_string(nullptr, std::move(text)));
}

ExprPtr ExpressionParser::parse_tuple(bool with_conditional, std::string_view end_name,
                                      bool in_parentheses) {
  auto tuple = make(ExprKind::kTuple, stream_.current().line);
  const auto at_end = [&] {
    return stream_.at(TokenKind::kVariableEnd) || stream_.at(TokenKind::kBlockEnd) ||
           stream_.at_op(")") || (!end_name.empty() && stream_.at_name(end_name));
  };
  bool has_comma = false;
  while (!at_end()) {
    adopt(*tuple, parse_expression(with_conditional));
    if (!stream_.skip_op(",")) break;
    has_comma = true;
  }
  if (has_comma) return tuple;
  if (tuple->children.size() == 1) return std::move(tuple->children[0]);
  if (!in_parentheses) stream_.fail_expected("an expression");
  return tuple;
}

ExprPtr ExpressionParser::parse_list() {
  auto list = make(ExprKind::kList, stream_.next().line);
  while (!stream_.at_op("]")) {
    adopt(*list, parse_expression());
    if (!stream_.skip_op(",")) break;
  }
  stream_.expect_op("]");
  return list;
}

ExprPtr ExpressionParser::parse_dict() {
  auto dict = make(ExprKind::kDict, stream_.next().line);
  while (!stream_.at_op("}")) {
    adopt(*dict, parse_expression());
    stream_.expect_op(":");
    adopt(*dict, parse_expression());
    if (!stream_.skip_op(",")) break;
  }
  stream_.expect_op("}");
  return dict;
}

ExprPtr ExpressionParser::parse_postfix(ExprPtr node) {
  while (true) {
    if (stream_.at_op(".") || stream_.at_op("[")) {
      node = parse_subscript(std::move(node));
    } else if (stream_.at_op("(")) {
      node = parse_call(std::move(node));
    } else {
      return node;
    }
  }
}

ExprPtr ExpressionParser::parse_filters_and_tests(ExprPtr node) {
  while (true) {
    if (stream_.skip_op("|")) {
      node = parse_filter(std::move(node));
    } else if (stream_.at_name("is")) {
      node = parse_test(std::move(node));
    } else if (stream_.at_op("(")) {
      node = parse_call(std::move(node));
    } else {
      return node;
    }
  }
}

ExprPtr ExpressionParser::parse_subscript(ExprPtr node) {
  const Token& token = stream_.next();
  if (token.text == ".") {
    const Token& name = stream_.next();
    if (name.kind == TokenKind::kName) {
      auto attribute = make(ExprKind::kAttribute, token.line, name.text);
      adopt(*attribute, std::move(node));
      return attribute;
    }
    if (name.kind != TokenKind::kInteger)
      fail_at(name.line, "expected a name or a number after '.'.");
    auto item = make(ExprKind::kItem, token.line);
    adopt(*item, std::move(node));
    adopt(*item, make_constant(name.line, Value::integer(name.integer)));
    return item;
  }
  auto index = make(ExprKind::kTuple, token.line);
  while (!stream_.at_op("]")) {
    if (!index->children.empty()) stream_.expect_op(",");
    adopt(*index, parse_subscript_part());
  }
  stream_.expect_op("]");
  auto item = make(ExprKind::kItem, token.line);
  adopt(*item, std::move(node));
  adopt(*item, index->children.size() == 1 ? std::move(index->children[0]) : std::move(index));
  return item;
}

// An index or a slice.
ExprPtr ExpressionParser::parse_subscript_part() {
  const int line = stream_.current().line;
  const auto at_end = [&] {
    return stream_.at_op(":") || stream_.at_op("]") || stream_.at_op(",");
  };
  ExprPtr first;
  if (!stream_.at_op(":")) {
    first = parse_expression();
    if (!stream_.at_op(":")) return first;
  }
  stream_.next();
  auto slice = make(ExprKind::kSlice, line);
  adopt(*slice, std::move(first));
  adopt(*slice, at_end() ? nullptr : parse_expression());
  adopt(*slice, stream_.skip_op(":") && !at_end() ? parse_expression() : nullptr);
  return slice;
}

ExprPtr ExpressionParser::parse_call(ExprPtr node) {
  auto call = make(ExprKind::kCall, stream_.current().line);
  adopt(*call, std::move(node));
  adopt_call(*call, parse_arguments());
  return call;
}

CallExprs ExpressionParser::parse_arguments() {
  CallExprs call;
  stream_.expect_op("(");
  while (!stream_.at_op(")")) {
    if (call.positional.size() + call.keywords.size() >= kMaxArguments) {
      stream_.fail("a call has more than " + std::to_string(kMaxArguments) + " arguments.");
    }
    parse_argument(call);
    if (!stream_.skip_op(",")) break;
  }
  stream_.expect_op(")");
  return call;
}

void ExpressionParser::parse_argument(CallExprs& call) {
  const int line = stream_.current().line;
  const auto ensure = [&](bool allowed) {
    if (!allowed) fail_at(line, "the arguments of this call are in the wrong order.");
  };
  if (stream_.skip_op("*")) {
    ensure(!call.star && !call.double_star);
    call.star = parse_expression();
  } else if (stream_.skip_op("**")) {
    ensure(!call.double_star);
    call.double_star = parse_expression();
  } else if (stream_.at(TokenKind::kName) && stream_.look().kind == TokenKind::kOperator &&
             stream_.look().text == "=") {
    ensure(!call.double_star);
    std::string name = stream_.next().text;
    stream_.next();
    for (const auto& keyword : call.keywords) {
      if (keyword.first == name) fail_at(line, "the argument '" + name + "' is given twice.");
    }
    call.keywords.emplace_back(std::move(name), parse_expression());
  } else {
    ensure(!call.star && !call.double_star && call.keywords.empty());
    call.positional.push_back(parse_expression());
  }
}

std::string ExpressionParser::parse_dotted_name(std::string_view what) {
  std::string name = stream_.expect_name(what);
  while (stream_.skip_op(".")) name += "." + stream_.expect_name(what);
  return name;
}

ExprPtr ExpressionParser::parse_filters(ExprPtr subject, bool starts_inline) {
  if (starts_inline) subject = parse_filter(std::move(subject));
  while (stream_.skip_op("|")) subject = parse_filter(std::move(subject));
  reject_unknown();
  return subject;
}

ExprPtr ExpressionParser::parse_filter(ExprPtr subject) {
  const int line = stream_.current().line;
  auto filter = make(ExprKind::kFilter, line, parse_dotted_name("the name of a filter"));
  if (find_filter(filter->name) == nullptr)
    unknown_.emplace_back(line, unknown_filter(filter->name));
  adopt(*filter, std::move(subject));
  if (stream_.at_op("(")) adopt_call(*filter, parse_arguments());
  return filter;
}

// Whether an argument without parentheses follows, as in "x is divisibleby 3".
bool ExpressionParser::at_test_argument() const {
  switch (stream_.current().kind) {
    case TokenKind::kString:
    case TokenKind::kInteger:
    case TokenKind::kFloat:
      return true;
    case TokenKind::kName:
      return !stream_.at_name("else") && !stream_.at_name("or") && !stream_.at_name("and");
    default:
      return stream_.at_op("[") || stream_.at_op("{");
  }
}

ExprPtr ExpressionParser::parse_test(ExprPtr subject) {
  const int line = stream_.next().line;
  const bool negated = stream_.skip_name("not");
  auto test = make(ExprKind::kTest, line, parse_dotted_name("the name of a test"));
  if (find_test(test->name) == nullptr) unknown_.emplace_back(line, unknown_test(test->name));
  adopt(*test, std::move(subject));
  if (stream_.at_op("(")) {
    adopt_call(*test, parse_arguments());
  } else if (at_test_argument()) {
    if (stream_.at_name("is")) stream_.fail("tests cannot be chained with 'is'.");
    CallExprs call;
    call.positional.push_back(parse_postfix(parse_primary()));
    adopt_call(*test, std::move(call));
  }
  if (!negated) return test;
  auto node = make(ExprKind::kUnary, line, "not");
  adopt(*node, std::move(test));
  return node;
}

}  // namespace quire::chat_internal
