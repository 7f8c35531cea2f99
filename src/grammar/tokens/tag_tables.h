#pragma once
// Tags as tables: the tree of their begins, the automaton of free text up to a trigger, and the
// shortest ways to an end.
//
// Thread safety: immutable once made, but for masks, which are locked.
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "grammar/tokens/dfa_endings.h"
#include "grammar/tokens/dfa_masks.h"
#include "grammar/tokens/tag_language.h"

namespace quire::grammar {

class TagTables {
 public:
  TagTables(TagOptions options, Budget& budget);

  const TagOptions& options() const { return options_; }
  const Tag& tag(int32_t i) const { return options_.tags[static_cast<size_t>(i)]; }
  bool has_free_text() const { return free_ != nullptr; }

  // A place in the begins of tags; 0 is before them.
  struct Node {
    std::vector<std::pair<uint8_t, int32_t>> children;
    std::vector<int32_t> complete;  // the tags whose begin ends here
    uint32_t depth = 0;
    int32_t best_tag = -1;         // which can be brought to its end with the fewest bytes,
    size_t best_bytes = SIZE_MAX;  // and these
  };
  const Node& node(int32_t i) const { return nodes_[static_cast<size_t>(i)]; }
  // The next place, -1 if there is none.
  int32_t step(int32_t node, uint8_t byte) const;

  // Free text up to the end of a trigger, at which it accepts.
  const Dfa& free_text() const { return *free_; }
  bool is_whole_text(int32_t state) const { return broken_bytes(state) == 0; }
  // The bytes that the last character of free text lacks.
  uint32_t broken_bytes(int32_t state) const {
    return utf8_endings_->distance(utf8_state_[static_cast<size_t>(state)]);
  }
  // The place in the begins behind the trigger that is complete in a state.
  int32_t node_behind(int32_t state) const { return node_behind_[static_cast<size_t>(state)]; }
  // The fewest bytes from a state of free text to behind a tag, and the most of any state.
  size_t bytes_to_tag_end(int32_t state) const { return to_tag_end_[static_cast<size_t>(state)]; }
  size_t most_to_tag_end() const { return most_to_tag_end_; }

  // The fewest bytes to an end behind so many tags, and these.
  size_t bytes_behind_tags(uint32_t count) const {
    return count >= options_.min_tags ? 0 : (options_.min_tags - count) * one_more_.size();
  }
  std::string text_behind_tags(uint32_t count) const;
  // The shortest ones from within free text, from within a begin, and within a tag.
  void append_broken_bytes(int32_t state, std::string& text) const;
  void append_free_text_and_tag(int32_t state, std::string& text) const;
  void append_rest_of_tag(int32_t node, std::string& text) const;

  DfaMasks& masks() const { return masks_; }
  // The nodes of the trie, behind others, at which a byte is `byte`; any, where it is kAnyByte.
  static constexpr int kAnyByte = 256;
  using NodesPtr = std::shared_ptr<const std::vector<uint32_t>>;
  NodesPtr nodes_of_byte(const TokenTrie& trie, int byte) const;

 private:
  void check(Budget& budget) const;
  void add_begin(int32_t tag, Budget& budget);
  void find_best_tags();
  int32_t node_of(const std::string& trigger) const;
  void make_free_text(Budget& budget);
  void find_tag_ends();
  size_t tail_bytes(int32_t tag) const { return tails_[static_cast<size_t>(tag)].size(); }

  TagOptions options_;
  std::vector<std::string> tails_;  // the shortest of each tag behind its begin
  std::vector<Node> nodes_{1};
  DfaPtr utf8_;
  std::unique_ptr<DfaEndings> utf8_endings_;
  DfaPtr free_;
  std::vector<int32_t> utf8_state_;
  std::vector<int32_t> node_behind_;
  std::vector<size_t> to_tag_end_;
  std::vector<uint8_t> byte_to_tag_end_;
  size_t most_to_tag_end_ = 0;
  std::string one_more_;  // the shortest text of one more tag

  mutable DfaMasks masks_;
  mutable std::mutex mutex_;
  mutable uint64_t trie_ = 0;  // which these are of
  mutable std::unordered_map<int, NodesPtr> nodes_of_byte_;
};

}  // namespace quire::grammar
