#pragma once
// Names of an object's members so far, or items of an array: lists that share what they have in
// common, and are asked for one name fast however many there are.
//
// A tree of hashes: a node has a name, and what is behind it is divided by the next 4 bits of the
// names' hashes. A longer list copies the nodes on the way to its new one.
// Thread safety: immutable.
#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace quire::grammar {

class NameList {
 public:
  bool contains(std::string_view name) const {
    if (root_ == nullptr) return false;
    const size_t hash = std::hash<std::string_view>()(name);
    size_t level = 0;
    for (const Node* node = root_.get(); node != nullptr;) {
      if (node->hash == hash && *node->name == name) return true;
      node = node->behind[branch(hash, level++)].get();
    }
    return false;
  }
  bool is_empty() const { return root_ == nullptr; }
  NameList with(std::string_view name) const {
    if (contains(name)) return *this;
    NameList list;
    list.root_ = add(root_, name, std::hash<std::string_view>()(name), 0);
    return list;
  }
  // Each once, in no order of theirs.
  template <typename Visit>
  void for_each(const Visit& visit) const {
    for_each_below(root_.get(), visit);
  }

 private:
  static constexpr size_t kBits = 4;
  struct Node {
    std::shared_ptr<const std::string> name;
    size_t hash = 0;
    std::array<std::shared_ptr<const Node>, size_t{1} << kBits> behind;
  };
  using NodePtr = std::shared_ptr<const Node>;

  // Names of one hash follow each other in one branch.
  static size_t branch(size_t hash, size_t level) {
    return hash >> (kBits * level) % (8 * sizeof(size_t)) & ((size_t{1} << kBits) - 1);
  }
  static NodePtr add(const NodePtr& to, std::string_view name, size_t hash, size_t level) {
    if (to == nullptr) {
      return std::make_shared<const Node>(
          Node{std::make_shared<const std::string>(name), hash, {}});
    }
    auto node = std::make_shared<Node>(*to);
    NodePtr& next = node->behind[branch(hash, level)];
    next = add(next, name, hash, level + 1);
    return node;
  }
  template <typename Visit>
  static void for_each_below(const Node* node, const Visit& visit) {
    if (node == nullptr) return;
    visit(std::string_view(*node->name));
    for (const NodePtr& next : node->behind) for_each_below(next.get(), visit);
  }

  NodePtr root_;
};

}  // namespace quire::grammar
