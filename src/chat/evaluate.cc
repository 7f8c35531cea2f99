// Expressions.
#include <compare>

#include "chat/builtins.h"
#include "chat/interpreter.h"
#include "chat/operators.h"
#include "chat/text.h"

namespace quire::chat_internal {

Value Interpreter::evaluate(const Expr& expr) {
  const Runtime::Level level(runtime_);
  runtime_.line = expr.line;
  runtime_.step();
  return evaluate_kind(expr);
}

Value Interpreter::evaluate_kind(const Expr& expr) {
  switch (expr.kind) {
    case ExprKind::kConstant:
      return expr.constant;
    case ExprKind::kName:
      return evaluate_name(expr);
    case ExprKind::kList:
      return make_list(&runtime_, evaluate_children(expr));
    case ExprKind::kTuple:
      return make_tuple(&runtime_, evaluate_children(expr));
    case ExprKind::kDict:
      return evaluate_dict(expr);
    case ExprKind::kSlice:
      return evaluate_slice(expr);
    case ExprKind::kAttribute: {
      const Value object = evaluate(*expr.children[0]);
      runtime_.line = expr.line;
      return get_attribute(object, expr.name);
    }
    case ExprKind::kItem: {
      const Value object = evaluate(*expr.children[0]);
      const Value key = evaluate(*expr.children[1]);
      runtime_.line = expr.line;
      return key.is(Kind::kSlice) ? get_slice(object, key) : get_item(object, key);
    }
    case ExprKind::kCall:
      return evaluate_call(expr);
    case ExprKind::kFilter:
      return apply_filters(&expr, Value());
    case ExprKind::kTest: {
      const Value subject = evaluate(*expr.children[0]);
      CallArgs args = evaluate_arguments(expr.call);
      runtime_.line = expr.line;
      return Value::boolean(apply_test(expr.name, subject, args));
    }
    case ExprKind::kUnary:
      return evaluate_unary(expr);
    case ExprKind::kBinary:
      return evaluate_binary(expr);
    case ExprKind::kConcat:
      return evaluate_concat(expr);
    case ExprKind::kAnd: {
      Value left = evaluate(*expr.children[0]);
      return truthy(left) ? evaluate(*expr.children[1]) : left;
    }
    case ExprKind::kOr: {
      Value left = evaluate(*expr.children[0]);
      return truthy(left) ? left : evaluate(*expr.children[1]);
    }
    case ExprKind::kCompare:
      return evaluate_compare(expr);
    case ExprKind::kConditional:
      return evaluate_conditional(expr);
  }
  return Value();
}

Value Interpreter::evaluate_name(const Expr& expr) {
  if (const Value* found = scope_->find(expr.name)) return *found;
  if (auto global = find_global(*this, expr.name)) return *global;
  return make_undefined(&runtime_, "'" + expr.name + "' is undefined");
}

Items Interpreter::evaluate_children(const Expr& expr) {
  Items items;
  items.reserve(expr.children.size());
  for (const auto& child : expr.children) items.push_back(evaluate(*child));
  return items;
}

Value Interpreter::evaluate_dict(const Expr& expr) {
  DictBuilder dict(runtime_);
  for (std::size_t i = 0; i + 1 < expr.children.size(); i += 2) {
    const Value key = evaluate(*expr.children[i]);
    Value value = evaluate(*expr.children[i + 1]);
    runtime_.line = expr.line;
    dict.set(key, std::move(value));
  }
  return dict.take();
}

Value Interpreter::evaluate_slice(const Expr& expr) {
  auto slice = std::make_shared<SliceObject>();
  const auto part = [&](std::size_t i) {
    return expr.children[i] == nullptr ? Value::none() : evaluate(*expr.children[i]);
  };
  slice->start = part(0);
  slice->stop = part(1);
  slice->step = part(2);
  return Value(Kind::kSlice, std::move(slice));
}

Value Interpreter::evaluate_call(const Expr& expr) {
  const Value callee = evaluate(*expr.children[0]);
  CallArgs args = evaluate_arguments(expr.call);
  runtime_.line = expr.line;
  return call(callee, args);
}

Value Interpreter::call(const Value& callee, CallArgs& args) {
  const Runtime::Level level(runtime_);
  runtime_.step();
  switch (callee.kind()) {
    case Kind::kFunction:
      return callee.function().call(*this, args);
    case Kind::kObject:
      return callee.attributes().call(*this, args);
    case Kind::kUndefined:
      runtime_.fail(callee.undefined_reason() + ", so it cannot be called.");
    default:
      runtime_.fail("a " + std::string(type_name(callee)) + " cannot be called.");
  }
}

CallArgs Interpreter::evaluate_arguments(const CallExprs& call) {
  CallArgs args;
  for (const auto& argument : call.positional) args.positional.push_back(evaluate(*argument));
  if (call.star != nullptr) {
    for (Value& item : to_items(runtime_, evaluate(*call.star))) {
      args.positional.push_back(std::move(item));
    }
  }
  for (const auto& [name, value] : call.keywords)
    args.keywords.emplace_back(name, evaluate(*value));
  if (call.double_star == nullptr) return args;
  const Value more = evaluate(*call.double_star);
  if (!more.is(Kind::kDict)) runtime_.fail("the argument after ** must be a dict.");
  for (const auto& [key, value] : more.dict().entries) {
    if (!key.is_string()) runtime_.fail("the keys of the dict after ** must be strings.");
    for (const auto& keyword : args.keywords) {
      if (keyword.first == key.text()) {
        runtime_.fail("the argument '" + key.text() + "' is given twice.");
      }
    }
    args.keywords.emplace_back(key.text(), value);
    runtime_.step(args.keywords.size());
  }
  return args;
}

Value Interpreter::evaluate_unary(const Expr& expr) {
  const Value value = evaluate(*expr.children[0]);
  runtime_.line = expr.line;
  if (expr.name == "not") return Value::boolean(!truthy(value));
  return expr.name == "-" ? negate(runtime_, value) : positive(runtime_, value);
}

Value Interpreter::evaluate_binary(const Expr& expr) {
  const Value left = evaluate(*expr.children[0]);
  const Value right = evaluate(*expr.children[1]);
  runtime_.line = expr.line;
  return binary(*this, expr.name, left, right);
}

Value Interpreter::evaluate_concat(const Expr& expr) {
  TextBuilder text(runtime_);
  for (const Value& part : evaluate_children(expr)) {
    if (part.is_string()) {
      text.append(part.marked_text());
    } else {
      text.append(to_text(runtime_, part));
    }
  }
  return make_string(&runtime_, text.release());
}

Value Interpreter::evaluate_compare(const Expr& expr) {
  Value left = evaluate(*expr.children[0]);
  for (std::size_t i = 0; i < expr.operators.size(); ++i) {
    Value right = evaluate(*expr.children[i + 1]);
    runtime_.line = expr.line;
    if (!compare(expr.operators[i], left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

bool Interpreter::compare(const std::string& op, const Value& left, const Value& right) {
  if (op == "==") return equal(runtime_, left, right);
  if (op == "!=") return !equal(runtime_, left, right);
  if (op == "in") return contains(runtime_, right, left);
  if (op == "not in") return !contains(runtime_, right, left);
  if (left.is_number() && right.is_number()) {
    const auto order = compare_numbers(left, right);
    if (op == "<") return std::is_lt(order);
    if (op == "<=") return std::is_lteq(order);
    return op == ">" ? std::is_gt(order) : std::is_gteq(order);
  }
  if (op == "<") return less(runtime_, left, right);
  if (op == ">") return less(runtime_, right, left);
  return op == "<=" ? !less(runtime_, right, left) : !less(runtime_, left, right);
}

Value Interpreter::evaluate_conditional(const Expr& expr) {
  if (truthy(evaluate(*expr.children[0]))) return evaluate(*expr.children[1]);
  if (expr.children[2] != nullptr) return evaluate(*expr.children[2]);
  return make_undefined(
      &runtime_, "the inline if-expression evaluated to false and no else section was defined");
}

Value Interpreter::apply_filters(const Expr* expr, const Value& text) {
  if (expr == nullptr) return text;
  const Runtime::Level level(runtime_);
  const Expr* inner = expr->children[0].get();
  const bool is_chain = inner == nullptr || inner->kind == ExprKind::kFilter;
  const Value subject = is_chain ? apply_filters(inner, text) : evaluate(*inner);
  CallArgs args = evaluate_arguments(expr->call);
  runtime_.line = expr->line;
  return apply_filter(expr->name, subject, args);
}

Value Interpreter::apply_filter(const std::string& name, const Value& subject, CallArgs& args) {
  const Runtime::Level level(runtime_);
  runtime_.step();
  const Filter filter = find_filter(name);
  if (filter == nullptr) runtime_.fail(unknown_filter(name));
  return filter(*this, subject, args);
}

bool Interpreter::apply_test(const std::string& name, const Value& subject, CallArgs& args) {
  const Runtime::Level level(runtime_);
  runtime_.step();
  const Test test = find_test(name);
  if (test == nullptr) runtime_.fail(unknown_test(name));
  return test(*this, subject, args);
}

namespace {

std::string object_name(const Value& value) {
  return value.is_none() ? "None" : "'" + std::string(type_name(value)) + " object'";
}

// An attribute that is no method: of namespaces, built-in objects and functions.
std::optional<Value> own_attribute(Interpreter& interpreter, const Value& value,
                                   std::string_view name) {
  if (value.is(Kind::kNamespace)) {
    const Value* found = value.name_space().find(name);
    return found == nullptr ? std::nullopt : std::optional(*found);
  }
  if (value.is(Kind::kObject)) return value.attributes().attribute(interpreter, name);
  if (value.is(Kind::kFunction) && name == "name") {
    return make_string(&interpreter.runtime(), value.function().name);
  }
  return find_method(interpreter, value, name);
}

}  // namespace

Value Interpreter::get_attribute(const Value& value, std::string_view name) {
  if (value.is_undefined()) runtime_.fail(value.undefined_reason() + ".");
  if (auto own = own_attribute(*this, value, name)) return *own;
  if (value.is(Kind::kDict)) {
    runtime_.step(1 + value.dict().entries.size() / 16);
    if (const Value* found = value.dict().find(name)) return *found;
  }
  return make_undefined(&runtime_,
                        object_name(value) + " has no attribute '" + std::string(name) + "'");
}

// Unlike an item, a slice that a value does not have is an error.
Value Interpreter::get_slice(const Value& value, const Value& slice) {
  if (value.is_undefined()) runtime_.fail(value.undefined_reason() + ".");
  if (auto part = quire::chat_internal::get_item(runtime_, value, slice)) return *part;
  runtime_.fail("a " + std::string(type_name(value)) +
                " cannot be sliced like this; slices are of strings and lists, by ints.");
}

Value Interpreter::get_item(const Value& value, const Value& key) {
  if (value.is_undefined()) runtime_.fail(value.undefined_reason() + ".");
  if (auto item = quire::chat_internal::get_item(runtime_, value, key)) return *item;
  if (!key.is_string()) {
    return make_undefined(&runtime_,
                          object_name(value) + " has no element " +
                              (key.is_integer() ? repr(runtime_, key).text() : "of this kind"));
  }
  if (auto own = own_attribute(*this, value, key.text())) return *own;
  return make_undefined(&runtime_,
                        object_name(value) + " has no attribute '" +
                            std::string(key.text().substr(0, byte_offset(key.text(), 200))) + "'");
}

}  // namespace quire::chat_internal
