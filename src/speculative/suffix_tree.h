#pragma once
// Counts, up to a depth, what follows what in some texts: for SuffixDecoding (Oliaro et al.,
// "SuffixDecoding: Extreme Speculative Decoding for Emerging AI Applications", 2025).
//
// A tree of token ids in which each suffix of each text is a path from the root. A node counts how
// often its path occurs. A path that only one suffix takes ends in a leaf, which says where in the
// texts that suffix goes on; it grows when a second suffix comes, so text without repeats costs one
// node a token. A node knows only the most frequent of its children; of equally frequent ones, the
// one seen last.
//
// Memory: 4 to 8 bytes a token and 26 to 52 a node (bytes() says how much); text that was seen
// twice has up to `depth` nodes a token. Thread safety: one thread at a time.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace quire::speculative_internal {

// What limits drafts.
struct SuffixLimits {
  size_t most = 0;            // drafts
  double factor = 1;          // drafts for each token of the match
  double min_token_prob = 0;  // of a draft and those before it together
};

struct SuffixDrafts {
  std::vector<int32_t> token_ids;
  double score = 0;  // how many of them are expected to be kept: the sum of their probabilities
};

class SuffixTree {
 public:
  // depth >= 2: tokens of a path at most.
  explicit SuffixTree(size_t depth);

  // Adds a token, >= 0, to the text.
  void append(int32_t token_id);
  // What is appended next begins another text.
  void end_text();

  // The drafts with the best score that the texts have behind suffixes, of any length, of the text
  // so far.
  SuffixDrafts after_text(const SuffixLimits& limits) const;
  // The same behind suffixes of `token_ids`, which are not part of this tree.
  SuffixDrafts after(std::span<const int32_t> token_ids, const SuffixLimits& limits) const;

  size_t num_tokens() const { return text_.size(); }
  size_t bytes() const;

 private:
  using NodeId = uint32_t;
  struct Node {
    NodeId parent = 0;
    int32_t token_id = 0;
    uint32_t count = 0;
    NodeId best_child = 0;  // 0: none
    uint32_t goes_on = 0;   // of a leaf: the place in text_ of what follows; else kGrown
  };
  // A place in the tree: a node, or behind a leaf in the text.
  struct Cursor {
    NodeId node = 0;
    uint32_t place = 0;
    bool in_text = false;  // at `place`, `node` is not used
  };
  struct Step {
    int32_t token_id = 0;
    double probability = 0;
    Cursor cursor;
  };

  size_t slot_of(NodeId parent, int32_t token_id) const;
  NodeId find_child(NodeId parent, int32_t token_id) const;
  NodeId add_child(NodeId parent, int32_t token_id, uint32_t goes_on);
  void count_child(NodeId parent, NodeId child);
  void grow_leaf(NodeId node);
  void grow_slots();
  bool has_text_at(size_t place) const;
  // Moves from a place to the one behind `token_id`; false if the texts have none.
  bool advance(Cursor& cursor, int32_t token_id) const;
  // The most frequent continuation of a place, if `num_ends` of its occurrences have none; false if
  // there is none.
  bool best_step(const Cursor& cursor, uint32_t num_ends, Step& step) const;
  SuffixDrafts follow(Cursor cursor, uint32_t num_ends, size_t match_length,
                      const SuffixLimits& limits) const;

  size_t depth_;
  uint64_t seed_;              // of hashes
  std::vector<int32_t> text_;  // all texts, an end behind each
  std::vector<Node> nodes_;    // the root first
  std::vector<NodeId> slots_;  // children by parent and token; 0: empty
  // The ends of the text's suffixes that occurred before: [i] has i + 1 tokens.
  std::vector<NodeId> matches_;
};

}  // namespace quire::speculative_internal
