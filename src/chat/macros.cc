// Macros and call blocks.
#include <algorithm>

#include "chat/guards.h"
#include "chat/interpreter.h"

namespace quire::chat_internal {

Value Interpreter::make_macro(const MacroNode& macro) {
  keep(scope_);
  return make_function(&runtime_, macro.name,
                       [&macro, closure = scope_](Interpreter& interpreter, CallArgs& args) {
                         return interpreter.call_macro(macro, closure, args);
                       });
}

void Interpreter::run_call_block(const Stmt& stmt) {
  const Value callee = evaluate(*stmt.expr->children[0]);
  CallArgs args = evaluate_arguments(stmt.expr->call);
  args.keywords.emplace_back("caller", make_macro(*stmt.macro));
  runtime_.line = stmt.line;
  out_->append(to_text(runtime_, call(callee, args)));
}

Value Interpreter::call_macro(const MacroNode& macro, const ScopePtr& closure, CallArgs& args) {
  const ScopeGuard scope(*this, make_scope(closure));
  OutputCapture capture(*this);
  bind_parameters(macro, args);
  run(macro.body);
  return make_string(&runtime_, capture.release());
}

void Interpreter::bind_parameters(const MacroNode& macro, CallArgs& args) {
  const std::size_t count = macro.parameters.size();
  const std::size_t first_default = count - macro.defaults.size();
  for (std::size_t i = 0; i < count; ++i) {
    const std::string& name = macro.parameters[i];
    if (i < args.positional.size()) {
      scope_->set(name, args.positional[i]);
      continue;
    }
    const auto keyword = std::find_if(args.keywords.begin(), args.keywords.end(),
                                      [&](const auto& entry) { return entry.first == name; });
    if (keyword != args.keywords.end()) {
      scope_->set(name, keyword->second);
      args.keywords.erase(keyword);
    } else if (i >= first_default) {
      scope_->set(name, evaluate(*macro.defaults[i - first_default]));
    } else {
      scope_->set(name, make_undefined(&runtime_, "parameter '" + name + "' was not provided"));
    }
  }
  bind_extra(macro, args, std::min(count, args.positional.size()));
}

// What is passed beyond the parameters goes to caller, kwargs and varargs, where the body reads
// them.
void Interpreter::bind_extra(const MacroNode& macro, CallArgs& args, std::size_t used) {
  const bool has_caller_parameter = std::find(macro.parameters.begin(), macro.parameters.end(),
                                              "caller") != macro.parameters.end();
  if (macro.uses_caller && !has_caller_parameter) {
    const auto caller = std::find_if(args.keywords.begin(), args.keywords.end(),
                                     [](const auto& entry) { return entry.first == "caller"; });
    if (caller != args.keywords.end()) {
      scope_->set("caller", caller->second);
      args.keywords.erase(caller);
    } else {
      scope_->set("caller", make_undefined(&runtime_, "no caller is defined"));
    }
  }
  if (macro.uses_kwargs) {
    DictBuilder rest(runtime_);
    for (auto& [name, value] : args.keywords)
      rest.set(make_string(&runtime_, marked_name(name)), std::move(value));
    scope_->set("kwargs", rest.take());
  } else if (!args.keywords.empty()) {
    runtime_.fail("the macro '" + macro.name + "' takes no argument named '" +
                  args.keywords[0].first + "'.");
  }
  if (macro.uses_varargs) {
    scope_->set("varargs", make_tuple(&runtime_, Items(args.positional.begin() +
                                                           static_cast<std::ptrdiff_t>(used),
                                                       args.positional.end())));
  } else if (args.positional.size() > used) {
    runtime_.fail("the macro '" + macro.name + "' takes at most " +
                  std::to_string(macro.parameters.size()) + " arguments.");
  }
}

}  // namespace quire::chat_internal
