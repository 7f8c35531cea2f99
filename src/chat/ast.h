#pragma once
// The tree of a parsed template. Immutable after parsing, so threads may share it.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "chat/value.h"

namespace quire::chat_internal {

enum class ExprKind {
  kConstant,   // constant
  kName,       // name
  kList,       // children
  kTuple,      // children
  kDict,       // children: key, value, key, value, ...
  kAttribute,  // children[0] . name
  kItem,       // children[0] [ children[1] ]
  kSlice,      // children: start, stop, step; each may be null
  kCall,       // children[0] ( call )
  kFilter,     // children[0] | name ( call ); children[0] is null at the start of a filter block
  kTest,       // children[0] is name ( call )
  kUnary,      // name ("-", "+", "not") children[0]
  kBinary,     // children[0] name children[1]; arithmetic
  kConcat,     // children joined by ~
  kAnd,        // children[0] and children[1]
  kOr,
  kCompare,      // children[0] operators[0] children[1] operators[1] children[2] ...
  kConditional,  // children: condition, then, else (may be null)
};

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

// The arguments of a call, filter or test.
struct CallExprs {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> keywords;
  ExprPtr star;         // *args
  ExprPtr double_star;  // **kwargs
};

struct Expr {
  ExprKind kind;
  int line = 1;
  int depth = 1;  // of the tree below: bounds recursion over it
  std::string name;
  Value constant;
  std::vector<ExprPtr> children;
  std::vector<std::string> operators;
  CallExprs call;
};

// Where an assignment goes.
struct Target {
  enum class Kind { kName, kAttribute, kTuple };
  Kind kind = Kind::kName;
  int line = 1;
  std::string name;
  std::string attribute;  // kAttribute: of the namespace `name`
  std::vector<Target> parts;
};

struct Stmt;
using Body = std::vector<std::unique_ptr<Stmt>>;

enum class StmtKind {
  kText,        // text
  kPrint,       // expr
  kIf,          // branches, else_body
  kFor,         // targets[0], expr (iterable), condition, body, else_body, recursive
  kSet,         // targets[0], expr
  kSetBlock,    // targets[0], expr (filters, may be null), body
  kMacro,       // macro
  kCallBlock,   // expr (the call), macro (the caller)
  kFilter,      // expr (filters), body
  kWith,        // targets, values, body
  kGeneration,  // body
  kBreak,
  kContinue,
};

// A macro or the body of a call block.
struct MacroNode {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<ExprPtr> defaults;  // of the last parameters
  Body body;
  // Whether the body reads these names, which decides what a call may pass.
  bool uses_varargs = false;
  bool uses_kwargs = false;
  bool uses_caller = false;
};

struct Stmt {
  StmtKind kind;
  int line = 1;
  Value text;
  ExprPtr expr;
  ExprPtr condition;
  std::vector<Target> targets;
  std::vector<ExprPtr> values;
  std::vector<std::pair<ExprPtr, Body>> branches;
  Body body;
  Body else_body;
  std::unique_ptr<MacroNode> macro;
  bool recursive = false;
};

}  // namespace quire::chat_internal
