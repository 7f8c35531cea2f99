#include "grammar/schema_index.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "grammar/uri.h"
#include "quire/error.h"

namespace quire::grammar {
namespace {

constexpr std::array<std::string_view, 6> kMapsOfSchemas = {
    "properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"};
constexpr std::array<std::string_view, 16> kSchemas = {"allOf",
                                                       "anyOf",
                                                       "oneOf",
                                                       "prefixItems",
                                                       "items",
                                                       "additionalItems",
                                                       "contains",
                                                       "additionalProperties",
                                                       "propertyNames",
                                                       "not",
                                                       "if",
                                                       "then",
                                                       "else",
                                                       "unevaluatedItems",
                                                       "unevaluatedProperties",
                                                       "contentSchema"};

Draft draft_of(const JsonTree& tree, const std::string& pointer) {
  const JsonTree* schema = tree.find("$schema");
  if (schema == nullptr) return Draft::k2020;
  std::string_view uri = schema->text;
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (uri.starts_with(scheme)) uri.remove_prefix(scheme.size());
  }
  if (uri.ends_with('#')) uri.remove_suffix(1);
  if (uri == "json-schema.org/draft-04/schema") return Draft::k4;
  if (uri == "json-schema.org/draft-06/schema") return Draft::k6;
  if (uri == "json-schema.org/draft-07/schema") return Draft::k7;
  if (uri == "json-schema.org/draft/2019-09/schema") return Draft::k2019;
  if (uri == "json-schema.org/draft/2020-12/schema" || uri == "json-schema.org/schema") {
    return Draft::k2020;
  }
  throw Error(fmt::format(
      "{}/$schema: {} is not known; expected the URI of a draft of JSON Schema from 4 to 2020-12",
      pointer, beginning(schema->raw, 200)));
}

void expect_string(const JsonTree& tree, std::string_view name, const std::string& pointer) {
  const JsonTree* member = tree.find(name);
  if (member == nullptr || member->kind == JsonTree::Kind::kString) return;
  throw Error(fmt::format("{}/{}: expected a string, got {}", pointer, name, kind_name(*member)));
}

const std::string* text_member(const JsonTree& tree, std::string_view name) {
  const JsonTree* member = tree.find(name);
  return member != nullptr && member->kind == JsonTree::Kind::kString ? &member->text : nullptr;
}

}  // namespace

SchemaIndex::SchemaIndex(const JsonTree& root)
    : draft_(draft_of(root, "#")), names_its_draft_(text_member(root, "$schema") != nullptr) {
  resources_.push_back({"", {&root, 0, "#"}});
  scan(root, 0, "#");
  name_resources();
}

void SchemaIndex::name_resources() {
  for (size_t i = 0; i < resources_.size(); ++i) {
    const std::string& uri = resources_[i].uri;
    if (!resource_named_.emplace(uri, i).second) ambiguous_.insert(uri);
  }
}

void SchemaIndex::add_anchor(const std::string& key, Place place) {
  const JsonTree* tree = place.tree;
  const auto [found, is_new] = anchors_.try_emplace(key, std::move(place));
  if (!is_new && found->second.tree != tree) ambiguous_.insert(key);
}

void SchemaIndex::scan(const JsonTree& tree, int resource, const std::string& pointer) {
  if (tree.kind != JsonTree::Kind::kObject) return;
  // Where no resource begins, $schema says nothing.
  const bool is_resource = tree.find("$id") != nullptr || tree.find("id") != nullptr;
  if (is_resource && tree.find("$schema") != nullptr && draft_of(tree, pointer) != draft_) {
    throw Error(fmt::format(
        "{}/$schema: another draft than the whole schema's; only one is taken at a time", pointer));
  }
  const bool is_ignored = ref_stands_alone() && tree.find("$ref") != nullptr;
  const std::string_view id_name = draft_ == Draft::k4 ? "id" : "$id";
  if (!is_ignored) expect_string(tree, id_name, pointer);
  const std::string* id = text_member(tree, id_name);
  if (id != nullptr && !is_ignored) {
    const std::string& base = resources_[static_cast<size_t>(resource)].uri;
    const UriReference own = resolve_reference(base, *id);
    if (id->starts_with('#')) {
      add_anchor(fmt::format("{}#{}", base, own.fragment), Place{&tree, resource, pointer});
    } else if (pointer == "#") {
      resources_[0].uri = own.uri;
    } else {
      resource = static_cast<int>(resources_.size());
      resources_.push_back({own.uri, {&tree, resource, pointer}});
      resource_of_.emplace(&tree, resource);
    }
  }
  for (const std::string_view name : {"$anchor", "$dynamicAnchor"}) {
    const std::string* anchor = text_member(tree, name);
    if (anchor == nullptr || draft_ < Draft::k2019) continue;
    const std::string& uri = resources_[static_cast<size_t>(resource)].uri;
    add_anchor(fmt::format("{}#{}", uri, *anchor), Place{&tree, resource, pointer});
    if (name == "$dynamicAnchor") ++dynamic_anchors_[*anchor];
  }
  has_recursive_anchor_ |= tree.find("$recursiveAnchor") != nullptr;
  scan_children(tree, resource, pointer);
}

void SchemaIndex::scan_children(const JsonTree& tree, int resource, const std::string& pointer) {
  for (const auto& [name, value] : tree.members) {
    const std::string below = fmt::format("{}/{}", pointer, name);
    if (std::ranges::find(kMapsOfSchemas, name) != kMapsOfSchemas.end()) {
      for (const auto& [key, schema] : value.members) {
        scan(schema, resource, fmt::format("{}/{}", below, pointer_token(key)));
      }
    } else if (std::ranges::find(kSchemas, name) != kSchemas.end()) {
      scan(value, resource, below);
      for (size_t i = 0; i < value.items.size(); ++i) {
        scan(value.items[i], resource, fmt::format("{}/{}", below, i));
      }
    }
  }
}

int SchemaIndex::resource_at(const JsonTree& tree, int resource) const {
  const auto found = resource_of_.find(&tree);
  return found == resource_of_.end() ? resource : found->second;
}

int SchemaIndex::num_dynamic_anchors(std::string_view name) const {
  const auto found = dynamic_anchors_.find(std::string(name));
  return found == dynamic_anchors_.end() ? 0 : found->second;
}

SchemaIndex::Place SchemaIndex::find(std::string_view reference, int resource) const {
  const UriReference target =
      resolve_reference(resources_[static_cast<size_t>(resource)].uri, reference);
  if (!target.fragment.empty() && target.fragment[0] != '/') {
    const auto found = anchors_.find(fmt::format("{}#{}", target.uri, target.fragment));
    return found == anchors_.end() ? Place{} : found->second;
  }
  const auto found = resource_named_.find(target.uri);
  return found == resource_named_.end() ? Place{}
                                        : follow(resources_[found->second].place, target.fragment);
}

bool SchemaIndex::is_ambiguous(std::string_view reference, int resource) const {
  const UriReference target =
      resolve_reference(resources_[static_cast<size_t>(resource)].uri, reference);
  const bool is_anchor = !target.fragment.empty() && target.fragment[0] != '/';
  return ambiguous_.contains(target.uri) ||
         (is_anchor && ambiguous_.contains(fmt::format("{}#{}", target.uri, target.fragment)));
}

SchemaIndex::Place SchemaIndex::follow(const Place& from, std::string_view pointer) const {
  Place place = from;
  while (!pointer.empty()) {
    pointer.remove_prefix(1);
    const size_t end = std::min(pointer.find('/'), pointer.size());
    const std::string_view token = pointer.substr(0, end);
    pointer.remove_prefix(end);
    std::string name;
    for (size_t i = 0; i < token.size(); ++i) {
      const bool is_escape = token[i] == '~' && i + 1 < token.size();
      name += !is_escape ? token[i] : token[++i] == '1' ? '/' : '~';
    }
    if (place.tree->kind == JsonTree::Kind::kArray) {
      const bool is_index = !name.empty() && name.size() < 9 &&
                            name.find_first_not_of("0123456789") == std::string::npos;
      const size_t i = is_index ? std::stoul(name) : place.tree->items.size();
      if (i >= place.tree->items.size()) return {};
      place.tree = &place.tree->items[i];
    } else {
      place.tree = place.tree->find(name);
      if (place.tree == nullptr) return {};
    }
    place.pointer += fmt::format("/{}", pointer_token(name));
    place.resource = resource_at(*place.tree, place.resource);
  }
  return place;
}

}  // namespace quire::grammar
