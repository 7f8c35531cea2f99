// {% for %} and the `loop` variable.
#include <algorithm>
#include <deque>

#include "chat/builtins.h"
#include "chat/guards.h"
#include "chat/interpreter.h"

namespace quire::chat_internal {
namespace {

// What `loop` is. It reads at most one item ahead, so that a condition is asked as late as in
// Jinja.
class LoopObject : public AttributeObject, public std::enable_shared_from_this<LoopObject> {
 public:
  LoopObject(Interpreter& interpreter, const Stmt& stmt, Value items, ScopePtr outer, int depth)
      : interpreter_(interpreter),
        stmt_(stmt),
        items_(items),
        cursor_(interpreter.runtime(), std::move(items)),
        outer_(std::move(outer)),
        depth_(depth) {
    this->Object::depth = items_.depth() + 1;
    interpreter.runtime().check_depth(this->Object::depth);
    charge(&interpreter.runtime(), 256);
  }

  // Moves to the next item; false at the end.
  bool advance() {
    peek();
    if (!ahead_[0]) return false;
    previous_ = std::exchange(current_, std::move(ahead_[0]));
    ahead_.pop_front();
    ++index0_;
    return true;
  }
  const Value& current() const { return *current_; }

  // Lets go of the scope around the loop, which may hold this object.
  void finish() { outer_.reset(); }

  std::string_view type_name() const override { return "LoopContext"; }

  std::optional<Value> attribute(Interpreter& interpreter, std::string_view name) override {
    if (name == "index") return Value::integer(index0_ + 1);
    if (name == "index0") return Value::integer(index0_);
    if (name == "first") return Value::boolean(index0_ == 0);
    if (name == "last") return Value::boolean(!peek().has_value());
    if (name == "length") return Value::integer(length());
    if (name == "revindex") return Value::integer(length() - index0_);
    if (name == "revindex0") return Value::integer(length() - index0_ - 1);
    if (name == "depth") return Value::integer(depth_ + 1);
    if (name == "depth0") return Value::integer(depth_);
    if (name == "previtem") return previous_ ? *previous_ : undefined("there is no previous item");
    if (name == "nextitem") return peek() ? *peek() : undefined("there is no next item");
    if (name == "cycle") return method(interpreter, "cycle", &LoopObject::cycle);
    if (name == "changed") return method(interpreter, "changed", &LoopObject::changed);
    return std::nullopt;
  }

  // loop(items) in a recursive loop.
  Value call(Interpreter& interpreter, CallArgs& args) override {
    if (!stmt_.recursive) {
      interpreter.runtime().fail("'loop' can be called only in a loop marked 'recursive'.");
    }
    if (outer_ == nullptr) interpreter.runtime().fail("'loop' cannot be called after its loop.");
    ArgReader reader(interpreter.runtime(), "loop()", args);
    const Value items = reader.required("iterable");
    reader.done();
    return interpreter.run_recursive_loop(stmt_, items, outer_, depth_ + 1);
  }

 private:
  Value undefined(const char* reason) { return make_undefined(&interpreter_.runtime(), reason); }

  std::optional<Value> pull() {
    while (outer_ != nullptr) {
      auto item = cursor_.next();
      if (!item) break;
      if (stmt_.condition == nullptr || interpreter_.loop_takes(stmt_, *item, outer_)) return item;
    }
    return std::nullopt;
  }

  // The next item, which stays the next; nullopt at the end.
  const std::optional<Value>& peek() {
    if (ahead_.empty()) ahead_.push_back(pull());
    return ahead_[0];
  }

  std::int64_t length() {
    if (length_) return *length_;
    if (stmt_.condition == nullptr) {
      if (const auto known = quire::chat_internal::length(items_)) {
        length_ = static_cast<std::int64_t>(*known);
        return *length_;
      }
    }
    // An iterator has to be read to its end to know.
    while (ahead_.empty() || ahead_.back()) {
      interpreter_.runtime().check_items(ahead_.size());
      ahead_.push_back(pull());
    }
    length_ = index0_ + 1 + static_cast<std::int64_t>(ahead_.size()) - 1;
    return *length_;
  }

  using Method = Value (LoopObject::*)(CallArgs&);
  Value method(Interpreter& interpreter, const char* name, Method method) {
    return make_function(&interpreter.runtime(), name,
                         [self = weak_from_this(), method](Interpreter& caller, CallArgs& args) {
                           const auto loop = self.lock();
                           if (loop == nullptr) caller.runtime().fail("this loop has ended.");
                           return (loop.get()->*method)(args);
                         });
  }

  Value cycle(CallArgs& args) {
    if (args.positional.empty())
      interpreter_.runtime().fail("loop.cycle() needs at least one value.");
    return args.positional[static_cast<std::size_t>(index0_) % args.positional.size()];
  }

  Value changed(CallArgs& args) {
    Value now = make_tuple(&interpreter_.runtime(), args.positional);
    const bool is_same = last_seen_ && equal(interpreter_.runtime(), *last_seen_, now);
    last_seen_ = std::move(now);
    return Value::boolean(!is_same);
  }

  Interpreter& interpreter_;
  const Stmt& stmt_;
  Value items_;
  Cursor cursor_;
  ScopePtr outer_;
  int depth_;
  std::int64_t index0_ = -1;
  std::optional<std::int64_t> length_;
  std::optional<Value> current_, previous_, last_seen_;
  // Items read ahead; nullopt marks the end.
  std::deque<std::optional<Value>> ahead_;
};

// Ends a loop, however it is left.
class LoopEnd {
 public:
  explicit LoopEnd(LoopObject& loop) : loop_(loop) {}
  ~LoopEnd() { loop_.finish(); }
  LoopEnd(const LoopEnd&) = delete;
  LoopEnd& operator=(const LoopEnd&) = delete;

 private:
  LoopObject& loop_;
};

}  // namespace

Interpreter::Flow Interpreter::run_loop(const Stmt& stmt, const Value& items, const ScopePtr& outer,
                                        int depth) {
  const auto loop = std::make_shared<LoopObject>(*this, stmt, items, outer, depth);
  const LoopEnd end(*loop);
  const Value loop_value(Kind::kObject, loop);
  // As in Jinja, {% else %} also runs if no round came to its end without break or continue.
  bool ran = false;
  ScopePtr round;
  while (loop->advance()) {
    if (round == nullptr) round = make_scope(outer);
    Flow flow;
    {
      const ScopeGuard scope(*this, round);
      round->set("loop", loop_value);
      assign(stmt.targets[0], loop->current());
      flow = run(stmt.body);
    }
    if (flow == Flow::kBreak) break;
    if (flow == Flow::kNormal) ran = true;
    if (round.use_count() == 1) {
      round->variables.clear();  // it serves the next round
    } else {
      round.reset();  // a macro holds it
    }
  }
  if (ran) return Flow::kNormal;
  const ScopeGuard scope(*this, make_scope(outer));
  return run(stmt.else_body);
}

Value Interpreter::run_recursive_loop(const Stmt& stmt, const Value& items, const ScopePtr& outer,
                                      int depth) {
  OutputCapture capture(*this);
  run_loop(stmt, items, outer, depth);
  return make_string(&runtime_, capture.release());
}

bool Interpreter::loop_takes(const Stmt& stmt, const Value& item, const ScopePtr& outer) {
  const ScopeGuard scope(*this, make_scope(outer));
  assign(stmt.targets[0], item);
  return truthy(evaluate(*stmt.condition));
}

}  // namespace quire::chat_internal
