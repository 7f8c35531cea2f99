#include "chat/parser.h"

#include <algorithm>

#include "chat/parser_state.h"

namespace quire::chat_internal {
namespace {

constexpr std::string_view kSupportedTags =
    "if, for, set, macro, call, filter, with, raw, print, generation, break, continue";

class TemplateParser {
 public:
  TemplateParser(std::string_view source, int max_nesting)
      : stream_(tokenize(source)), expressions_(stream_, max_nesting) {}

  Body parse() {
    Body body = parse_until({});
    return body;
  }

 private:
  using Names = std::vector<std::string_view>;

  // Statements until a block that starts with one of `ends`, whose name is the current token then.
  Body parse_until(const Names& ends) {
    const ExpressionParser::Nesting nesting(expressions_);
    Body body;
    while (!stream_.at(TokenKind::kEnd)) {
      const Token& token = stream_.next();
      if (token.kind == TokenKind::kData) {
        body.push_back(make(StmtKind::kText, token.line));
        body.back()->text = make_string(nullptr, token.text);
      } else if (token.kind == TokenKind::kVariableBegin) {
        body.push_back(make(StmtKind::kPrint, token.line));
        body.back()->expr = expressions_.parse_tuple();
        stream_.expect(TokenKind::kVariableEnd, "'}}'");
      } else {
        if (std::any_of(ends.begin(), ends.end(), [&](auto end) { return stream_.at_name(end); })) {
          return body;
        }
        parse_statement(ends, body);
        stream_.expect(TokenKind::kBlockEnd, "'%}'");
      }
    }
    if (!ends.empty()) stream_.fail("the template ends where " + join(ends) + " was expected.");
    return body;
  }

  // The body of a block up to one of `ends`; with `drop_end` past the end's name.
  Body parse_body(const Names& ends, bool drop_end) {
    stream_.skip_op(":");
    stream_.expect(TokenKind::kBlockEnd, "'%}'");
    Body body = parse_until(ends);
    if (drop_end) stream_.next();
    return body;
  }

  static std::string join(const Names& names) {
    std::string out;
    for (std::string_view name : names) {
      if (!out.empty()) out += " or ";
      out += "'" + std::string(name) + "'";
    }
    return out;
  }

  static std::unique_ptr<Stmt> make(StmtKind kind, int line) {
    auto stmt = std::make_unique<Stmt>();
    stmt->kind = kind;
    stmt->line = line;
    return stmt;
  }

  void parse_statement(const Names& ends, Body& out) {
    const int line = stream_.current().line;
    const std::string tag = stream_.expect_name("the name of a tag");
    if (tag == "print") return parse_print(line, out);
    if (tag == "if") {
      out.push_back(parse_if(line));
    } else if (tag == "for") {
      out.push_back(parse_for(line));
    } else if (tag == "set") {
      out.push_back(parse_set(line));
    } else if (tag == "macro") {
      out.push_back(parse_macro(line));
    } else if (tag == "call") {
      out.push_back(parse_call_block(line));
    } else if (tag == "filter") {
      out.push_back(make(StmtKind::kFilter, line));
      out.back()->expr = expressions_.parse_filters(nullptr, true);
      out.back()->body = parse_body({"endfilter"}, true);
    } else if (tag == "with") {
      out.push_back(parse_with(line));
    } else if (tag == "generation") {
      out.push_back(make(StmtKind::kGeneration, line));
      out.back()->body = parse_body({"endgeneration"}, true);
    } else if (tag == "break" || tag == "continue") {
      if (open_loops_ == 0) fail_at(line, "'" + tag + "' stands outside of a loop.");
      out.push_back(make(tag == "break" ? StmtKind::kBreak : StmtKind::kContinue, line));
    } else {
      fail_unknown_tag(line, tag, ends);
    }
  }

  [[noreturn]] static void fail_unknown_tag(int line, const std::string& tag, const Names& ends) {
    std::string message = "unknown tag '" + tag + "'";
    message += ends.empty() ? "" : "; " + join(ends) + " is expected here";
    fail_at(line, message + "; supported are " + std::string(kSupportedTags) + ".");
  }

  void parse_print(int line, Body& out) {
    bool first = true;
    while (!stream_.at(TokenKind::kBlockEnd)) {
      if (!first) stream_.expect_op(",");
      first = false;
      out.push_back(make(StmtKind::kPrint, line));
      out.back()->expr = expressions_.parse_expression();
    }
  }

  std::unique_ptr<Stmt> parse_if(int line) {
    auto stmt = make(StmtKind::kIf, line);
    ++expressions_.open_ifs;
    while (true) {
      ExprPtr condition = expressions_.parse_tuple(false);
      Body body = parse_body({"elif", "else", "endif"}, false);
      stmt->branches.emplace_back(std::move(condition), std::move(body));
      if (stream_.skip_name("elif")) continue;
      if (stream_.skip_name("else")) {
        stmt->else_body = parse_body({"endif"}, false);
      }
      stream_.next();
      break;
    }
    --expressions_.open_ifs;
    return stmt;
  }

  std::unique_ptr<Stmt> parse_for(int line) {
    auto stmt = make(StmtKind::kFor, line);
    stmt->targets.push_back(parse_target("in", false));
    check_loop_target(stmt->targets[0]);
    if (!stream_.skip_name("in")) stream_.fail_expected("'in'");
    stmt->expr = expressions_.parse_tuple(false, "recursive");
    if (stream_.skip_name("if")) stmt->condition = expressions_.parse_expression();
    stmt->recursive = stream_.skip_name("recursive");
    ++open_loops_;
    stmt->body = parse_body({"endfor", "else"}, false);
    --open_loops_;
    if (stream_.next().text == "else") stmt->else_body = parse_body({"endfor"}, true);
    return stmt;
  }

  static void check_loop_target(const Target& target) {
    if (target.name == "loop") fail_at(target.line, "a 'for' cannot assign to 'loop'.");
    for (const Target& part : target.parts) check_loop_target(part);
  }

  std::unique_ptr<Stmt> parse_set(int line) {
    auto stmt = make(StmtKind::kSet, line);
    stmt->targets.push_back(parse_target({}, true));
    if (stream_.skip_op("=")) {
      stmt->expr = expressions_.parse_tuple();
      return stmt;
    }
    stmt->kind = StmtKind::kSetBlock;
    stmt->expr = expressions_.parse_filters(nullptr, false);
    stmt->body = parse_body({"endset"}, true);
    return stmt;
  }

  std::unique_ptr<Stmt> parse_with(int line) {
    auto stmt = make(StmtKind::kWith, line);
    while (!stream_.at(TokenKind::kBlockEnd)) {
      if (!stmt->targets.empty()) stream_.expect_op(",");
      stmt->targets.push_back(parse_target({}, false));
      stream_.expect_op("=");
      stmt->values.push_back(expressions_.parse_expression());
    }
    stmt->body = parse_body({"endwith"}, true);
    return stmt;
  }

  // Loops outside a macro cannot be left from inside it.
  Body parse_macro_body(MacroNode& macro, const Names& ends) {
    expressions_.open_macros.push_back(&macro);
    const int loops = std::exchange(open_loops_, 0);
    Body body = parse_body(ends, true);
    open_loops_ = loops;
    expressions_.open_macros.pop_back();
    return body;
  }

  std::unique_ptr<Stmt> parse_macro(int line) {
    auto stmt = make(StmtKind::kMacro, line);
    stmt->macro = std::make_unique<MacroNode>();
    stmt->macro->name = parse_plain_name();
    parse_signature(*stmt->macro);
    stmt->macro->body = parse_macro_body(*stmt->macro, {"endmacro"});
    return stmt;
  }

  std::unique_ptr<Stmt> parse_call_block(int line) {
    auto stmt = make(StmtKind::kCallBlock, line);
    stmt->macro = std::make_unique<MacroNode>();
    stmt->macro->name = "caller";
    if (stream_.at_op("(")) parse_signature(*stmt->macro);
    stmt->expr = expressions_.parse_expression();
    if (stmt->expr->kind != ExprKind::kCall) fail_at(line, "'call' needs the call of a macro.");
    stmt->macro->body = parse_macro_body(*stmt->macro, {"endcall"});
    return stmt;
  }

  void parse_signature(MacroNode& macro) {
    stream_.expect_op("(");
    while (!stream_.at_op(")")) {
      if (!macro.parameters.empty()) stream_.expect_op(",");
      if (macro.parameters.size() >= kMaxArguments) {
        stream_.fail("a macro has more than " + std::to_string(kMaxArguments) + " parameters.");
      }
      macro.parameters.push_back(parse_plain_name());
      if (stream_.skip_op("=")) {
        macro.defaults.push_back(expressions_.parse_expression());
      } else if (macro.parameters.back() == "caller") {
        stream_.fail("the parameter 'caller' needs a default.");
      } else if (!macro.defaults.empty()) {
        stream_.fail("a parameter without a default follows one with a default.");
      }
    }
    stream_.expect_op(")");
  }

  std::string parse_plain_name() {
    const int line = stream_.current().line;
    std::string name = stream_.expect_name("a name");
    check_assignable(line, name);
    return name;
  }

  static void check_assignable(int line, std::string_view name) {
    for (std::string_view constant : {"true", "false", "none", "True", "False", "None"}) {
      if (name == constant) fail_at(line, "'" + std::string(name) + "' cannot be assigned to.");
    }
  }

  // A name, a namespace's attribute, or a tuple of them, up to `end_name`, "=" or the end of the
  // tag.
  Target parse_target(std::string_view end_name, bool with_attribute) {
    const ExpressionParser::Nesting nesting(expressions_);
    Target tuple;
    tuple.kind = Target::Kind::kTuple;
    tuple.line = stream_.current().line;
    bool has_comma = false;
    while (stream_.at(TokenKind::kName) || stream_.at_op("(")) {
      if (!end_name.empty() && stream_.at_name(end_name)) break;
      tuple.parts.push_back(parse_target_part(with_attribute));
      if (!stream_.skip_op(",")) break;
      has_comma = true;
    }
    if (tuple.parts.empty()) stream_.fail_expected("a name to assign to");
    return has_comma ? tuple : Target(std::move(tuple.parts[0]));
  }

  Target parse_target_part(bool with_attribute) {
    Target target;
    target.line = stream_.current().line;
    if (stream_.skip_op("(")) {
      target = parse_target({}, with_attribute);
      stream_.expect_op(")");
      return target;
    }
    target.name = parse_plain_name();
    if (with_attribute && stream_.skip_op(".")) {
      target.kind = Target::Kind::kAttribute;
      target.attribute = stream_.expect_name("the name of an attribute");
    }
    return target;
  }

  TokenStream stream_;
  ExpressionParser expressions_;
  int open_loops_ = 0;
};

}  // namespace

Body parse_template(std::string_view source, const TemplateLimits& limits) {
  return TemplateParser(source, limits.max_nesting).parse();
}

}  // namespace quire::chat_internal
