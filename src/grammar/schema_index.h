#pragma once
// Resolves the references of a schema: its resources ($id), anchors and JSON pointers.
//
// Thread safety: immutable once made.
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "grammar/json_tree.h"

namespace quire::grammar {

enum class Draft { k4, k6, k7, k2019, k2020 };

class SchemaIndex {
 public:
  // `root` must outlive it.
  explicit SchemaIndex(const JsonTree& root);

  struct Place {
    const JsonTree* tree = nullptr;  // null: it leads nowhere in this schema
    int resource = 0;
    std::string pointer{};
  };
  Draft draft() const { return draft_; }
  bool names_its_draft() const { return names_its_draft_; }
  // Whether the schema may be of this draft.
  bool may_be(Draft draft) const { return draft_ == draft || !names_its_draft_; }
  // Whether keywords beside a $ref are ignored.
  bool ref_stands_alone() const { return draft_ <= Draft::k7; }
  // The resource of a subschema that stands in a part of `resource`.
  int resource_at(const JsonTree& tree, int resource) const;
  Place find(std::string_view reference, int resource) const;
  // Whether several subschemas have the URI of the reference.
  bool is_ambiguous(std::string_view reference, int resource) const;
  // How often "$dynamicAnchor" gives this name.
  int num_dynamic_anchors(std::string_view name) const;
  bool has_recursive_anchor() const { return has_recursive_anchor_; }

 private:
  struct Resource {
    std::string uri;
    Place place;
  };
  void name_resources();
  void add_anchor(const std::string& key, Place place);
  void scan(const JsonTree& tree, int resource, const std::string& pointer);
  void scan_children(const JsonTree& tree, int resource, const std::string& pointer);
  Place follow(const Place& from, std::string_view pointer) const;

  Draft draft_ = Draft::k2020;
  bool names_its_draft_ = false;
  std::vector<Resource> resources_;
  std::unordered_map<std::string, size_t> resource_named_;  // by its URI
  std::unordered_set<std::string> ambiguous_;               // URIs, with and without #name
  std::unordered_map<const JsonTree*, int> resource_of_;
  std::unordered_map<std::string, Place> anchors_;  // by uri#name
  std::unordered_map<std::string, int> dynamic_anchors_;
  bool has_recursive_anchor_ = false;
};

}  // namespace quire::grammar
