#pragma once
// Reads the keywords of a JSON Schema into nodes.
//
// Thread safety: one thread at a time.
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "grammar/decimal.h"
#include "grammar/json_tree.h"
#include "grammar/schema.h"
#include "grammar/schema_index.h"

namespace quire::grammar {

class SchemaParser {
 public:
  SchemaParser(const JsonTree& root, DfaStore& strings, DfaStore& numbers, Budget& budget);

  Schema parse();

 private:
  struct Pending {  // a node whose keywords have not been read
    const JsonTree* tree;
    int resource;
    int node;
  };
  // The subschema that is being read.
  struct Context {
    const JsonTree& tree;
    int resource;
    SchemaNode& node;
  };
  [[noreturn]] void refuse(const Context& at, std::string_view keyword,
                           std::string_view what) const;
  // The node of a subschema; its keywords are read later.
  int node_of(const JsonTree& tree, int resource, std::string pointer);
  int child(const Context& at, const JsonTree& tree, std::string_view keyword,
            std::string_view token = {});
  std::vector<int> children(const Context& at, const JsonTree& list, std::string_view keyword);
  int add_node(std::string pointer);
  void read(const Pending& pending);

  void read_references(const Context& at);
  void read_reference(const Context& at, std::string_view keyword, const JsonTree& value);
  void read_types(const Context& at);
  void read_values(const Context& at);
  int node_of_value(const JsonTree& value, const std::string& pointer);
  void read_numbers(const Context& at);
  void read_strings(const Context& at);
  void read_arrays(const Context& at);
  void read_objects(const Context& at);
  void read_dependencies(const Context& at);
  void read_combinations(const Context& at);
  void read_unevaluated(const Context& at);

  std::optional<uint64_t> count(const Context& at, std::string_view keyword);
  std::optional<Decimal> number(const Context& at, std::string_view keyword);
  bool flag(const Context& at, std::string_view keyword);
  std::vector<std::string> names(const Context& at, std::string_view keyword,
                                 const JsonTree& value);
  int pattern(const Context& at, std::string_view keyword, const std::string& text);

  const JsonTree& root_;
  SchemaIndex index_;
  DfaStore& strings_;
  DfaStore& numbers_;
  Budget& budget_;
  Schema schema_;
  std::vector<Pending> pending_;
  std::unordered_map<const JsonTree*, int> node_numbers_;
};

}  // namespace quire::grammar
