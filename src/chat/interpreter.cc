// Statements; expressions are in evaluate.cc, macros in macros.cc, loops in loop.cc.
#include "chat/interpreter.h"

#include <algorithm>

#include "chat/builtins.h"
#include "chat/guards.h"
#include "chat/operators.h"

namespace quire::chat_internal {
namespace {

constexpr std::size_t kScopeBytes = 96;

}  // namespace

const Value* Scope::find(std::string_view name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent.get()) {
    runtime->step(scope->variables.size() / 8);
    for (const auto& variable : scope->variables) {
      if (variable.first == name) return &variable.second;
    }
  }
  return nullptr;
}

void Scope::set(std::string_view name, Value value) {
  runtime->step(variables.size() / 8);
  for (auto& variable : variables) {
    if (variable.first == name) {
      variable.second = std::move(value);
      return;
    }
  }
  variables.emplace_back(name, std::move(value));
}

Interpreter::Interpreter(Runtime& runtime, std::optional<std::chrono::local_seconds> now)
    : runtime_(runtime), now_(now), globals_(make_scope(nullptr)), scope_(globals_) {}

// Scopes and namespaces may hold themselves through closures and attributes.
Interpreter::~Interpreter() {
  for (const ScopePtr& scope : kept_scopes_) scope->variables.clear();
  for (const auto& name_space : namespaces_) name_space->attributes.clear();
}

void Interpreter::set_variable(std::string_view name, Value value) {
  globals_->set(name, std::move(value));
}

ScopePtr Interpreter::make_scope(const ScopePtr& parent) {
  auto scope = std::make_shared<Scope>();
  scope->charge(&runtime_, kScopeBytes);
  scope->parent = parent;
  return scope;
}

void Interpreter::keep(const ScopePtr& scope) {
  // Scopes nest, so all parents that matter are kept too.
  for (ScopePtr at = scope; at != nullptr && !at->kept; at = at->parent) {
    at->kept = true;
    kept_scopes_.push_back(at);
  }
}

Value Interpreter::make_namespace() {
  auto object = std::make_shared<NamespaceObject>();
  object->charge(&runtime_, kScopeBytes);
  namespaces_.push_back(object);
  return Value(Kind::kNamespace, std::move(object));
}

MarkedText Interpreter::render(const Body& body) {
  TextBuilder out(runtime_, true);
  out_ = &out;
  // The template's own variables do not mix with the caller's.
  const ScopeGuard scope(*this, make_scope(globals_));
  run(body);
  out_ = nullptr;
  return out.release();
}

Interpreter::Flow Interpreter::run(const Body& body) {
  for (const auto& stmt : body) {
    const Flow flow = run(*stmt);
    if (flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::run(const Stmt& stmt) {
  const Runtime::Level level(runtime_);
  runtime_.line = stmt.line;
  runtime_.step();
  switch (stmt.kind) {
    case StmtKind::kText:
      out_->append(stmt.text.text());
      break;
    case StmtKind::kPrint:
      run_print(stmt);
      break;
    case StmtKind::kIf:
      return run_if(stmt);
    case StmtKind::kFor:
      return run_loop(stmt, evaluate(*stmt.expr), scope_, 0);
    case StmtKind::kSet:
      run_set(stmt);
      break;
    case StmtKind::kSetBlock:
      run_set_block(stmt);
      break;
    case StmtKind::kMacro:
      scope_->set(stmt.macro->name, make_macro(*stmt.macro));
      break;
    case StmtKind::kCallBlock:
      run_call_block(stmt);
      break;
    case StmtKind::kFilter:
      run_filter_block(stmt);
      break;
    case StmtKind::kWith:
      return run_with(stmt);
    case StmtKind::kGeneration:
      out_->append(capture(stmt.body).marked_text());
      break;
    case StmtKind::kBreak:
      return Flow::kBreak;
    case StmtKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::run_if(const Stmt& stmt) {
  for (const auto& [condition, body] : stmt.branches) {
    if (truthy(evaluate(*condition))) return run(body);
  }
  return run(stmt.else_body);
}

void Interpreter::run_print(const Stmt& stmt) {
  const Value value = evaluate(*stmt.expr);
  runtime_.line = stmt.line;
  if (value.is_string()) {
    out_->append(value.marked_text());
  } else {
    out_->append(to_text(runtime_, value));
  }
}

void Interpreter::run_set(const Stmt& stmt) {
  assign(stmt.targets[0], evaluate(*stmt.expr));
}

void Interpreter::run_set_block(const Stmt& stmt) {
  assign(stmt.targets[0], apply_filters(stmt.expr.get(), capture(stmt.body)));
}

void Interpreter::run_filter_block(const Stmt& stmt) {
  out_->append(to_text(runtime_, apply_filters(stmt.expr.get(), capture(stmt.body))));
}

Interpreter::Flow Interpreter::run_with(const Stmt& stmt) {
  Items values;
  for (const auto& value : stmt.values) values.push_back(evaluate(*value));
  const ScopeGuard scope(*this, make_scope(scope_));
  for (std::size_t i = 0; i < values.size(); ++i) assign(stmt.targets[i], values[i]);
  return run(stmt.body);
}

Value Interpreter::capture(const Body& body) {
  const ScopeGuard scope(*this, make_scope(scope_));
  OutputCapture capture(*this);
  run(body);
  return make_string(&runtime_, capture.release());
}

void Interpreter::assign(const Target& target, const Value& value) {
  switch (target.kind) {
    case Target::Kind::kName:
      scope_->set(target.name, value);
      return;
    case Target::Kind::kAttribute: {
      const Value* object = scope_->find(target.name);
      runtime_.line = target.line;
      if (object == nullptr || !object->is(Kind::kNamespace)) {
        runtime_.fail("'" + target.name + "' is no namespace, so '" + target.attribute +
                      "' cannot be set on it.");
      }
      if (target.attribute.starts_with('_')) {
        runtime_.fail("a namespace's attribute must not start with '_', but '" + target.attribute +
                      "' does.");
      }
      object->name_space().set(target.attribute, value);
      return;
    }
    case Target::Kind::kTuple:
      return assign_tuple(target, value);
  }
}

void Interpreter::assign_tuple(const Target& target, const Value& value) {
  runtime_.line = target.line;
  // One more than is wanted is enough to know that there are too many.
  Items items;
  Cursor cursor(runtime_, value);
  while (items.size() <= target.parts.size()) {
    auto item = cursor.next();
    if (!item) break;
    items.push_back(std::move(*item));
  }
  if (items.size() != target.parts.size()) {
    runtime_.fail("a " + std::string(type_name(value)) + " with " +
                  (items.size() > target.parts.size() ? "more" : "fewer") + " than " +
                  std::to_string(target.parts.size()) + " items cannot be unpacked into " +
                  std::to_string(target.parts.size()) + " names.");
  }
  for (std::size_t i = 0; i < items.size(); ++i) assign(target.parts[i], items[i]);
}

}  // namespace quire::chat_internal
