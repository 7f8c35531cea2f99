#pragma once
// Walks the tree of a template and writes its text.
//
// One Interpreter serves one render on one thread. Its Runtime bounds what it does.
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chat/ast.h"
#include "chat/runtime.h"
#include "chat/value.h"

namespace quire::chat_internal {

// The variables of one block. Loops, macros and filter blocks open one; {% if %} does not.
struct Scope : Object {
  std::shared_ptr<Scope> parent;
  bool kept = false;  // in the list of scopes to clear at the end of the render
  std::vector<std::pair<std::string, Value>> variables;
  const Value* find(std::string_view name) const;  // here or in a parent
  void set(std::string_view name, Value value);    // here
};
using ScopePtr = std::shared_ptr<Scope>;

class Interpreter {
 public:
  // `now`: the time of strftime_now(); the machine's clock where unset.
  Interpreter(Runtime& runtime, std::optional<std::chrono::local_seconds> now);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  void set_variable(std::string_view name, Value value);
  MarkedText render(const Body& body);

  Runtime& runtime() { return runtime_; }
  std::chrono::local_seconds now() const;

  Value call(const Value& callee, CallArgs& args);
  // value.name; undefined where there is none.
  Value get_attribute(const Value& value, std::string_view name);
  // value[key]; undefined where there is none.
  Value get_item(const Value& value, const Value& key);
  Value get_slice(const Value& value, const Value& slice);
  Value apply_filter(const std::string& name, const Value& subject, CallArgs& args);
  bool apply_test(const std::string& name, const Value& subject, CallArgs& args);

  // An object that may come to hold itself; its contents are dropped when the render ends.
  Value make_namespace();

  // --- for loop.cc ---
  // Walks a loop's items; `depth` counts the levels of a recursive loop.
  enum class Flow { kNormal, kBreak, kContinue };
  Flow run_loop(const Stmt& stmt, const Value& items, const ScopePtr& outer, int depth);
  // The text of a loop run again with other items, from inside it.
  Value run_recursive_loop(const Stmt& stmt, const Value& items, const ScopePtr& outer, int depth);
  // Whether the loop's condition takes `item`.
  bool loop_takes(const Stmt& stmt, const Value& item, const ScopePtr& outer);

 private:
  class OutputCapture;
  class ScopeGuard;

  Flow run(const Body& body);
  Flow run(const Stmt& stmt);
  Flow run_if(const Stmt& stmt);
  void run_print(const Stmt& stmt);
  void run_set(const Stmt& stmt);
  void run_set_block(const Stmt& stmt);
  void run_filter_block(const Stmt& stmt);
  Flow run_with(const Stmt& stmt);
  void run_call_block(const Stmt& stmt);
  // The text that `body` writes in a scope of its own.
  Value capture(const Body& body);
  void assign(const Target& target, const Value& value);
  void assign_tuple(const Target& target, const Value& value);

  Value evaluate(const Expr& expr);
  Value evaluate_kind(const Expr& expr);
  Value evaluate_name(const Expr& expr);
  Items evaluate_children(const Expr& expr);
  Value evaluate_dict(const Expr& expr);
  Value evaluate_slice(const Expr& expr);
  Value evaluate_call(const Expr& expr);
  Value evaluate_unary(const Expr& expr);
  Value evaluate_binary(const Expr& expr);
  Value evaluate_concat(const Expr& expr);
  Value evaluate_compare(const Expr& expr);
  bool compare(const std::string& op, const Value& left, const Value& right);
  Value evaluate_conditional(const Expr& expr);
  // A chain of filters on the text of a block.
  Value apply_filters(const Expr* expr, const Value& text);
  CallArgs evaluate_arguments(const CallExprs& call);

  Value make_macro(const MacroNode& macro);
  Value call_macro(const MacroNode& macro, const ScopePtr& closure, CallArgs& args);
  void bind_parameters(const MacroNode& macro, CallArgs& args);
  void bind_extra(const MacroNode& macro, CallArgs& args, std::size_t used);

  ScopePtr make_scope(const ScopePtr& parent);
  // Keeps a scope that a closure holds, so that cycles end with the render.
  void keep(const ScopePtr& scope);

  Runtime& runtime_;
  std::optional<std::chrono::local_seconds> now_;
  std::vector<ScopePtr> kept_scopes_;
  std::vector<std::shared_ptr<NamespaceObject>> namespaces_;
  ScopePtr globals_;
  ScopePtr scope_;
  TextBuilder* out_ = nullptr;
};

}  // namespace quire::chat_internal
