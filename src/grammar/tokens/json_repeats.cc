// Keeps generated arrays without repeats from places where an item can only repeat another.
//
// A place is left open if the shortest ending of the item is no repeat, or if some bytes are found
// behind which that is so. Whatever leads there stays open then, so there is always a way on.
#include "grammar/string_reader.h"
#include "grammar/tokens/json_token_matcher.h"

namespace quire::grammar {

// The innermost array in which the shortest ending would repeat an item; null: none.
const JsonFrame* JsonTokenMatcher::repeated_in(const State& at) const {
  // An array is asked while one of its items is being written.
  const JsonFrame* frame = at.context->frame.get();
  if (frame != nullptr && at.context->slots.empty() && !frame->is_object) {
    frame = frame->opened_in->frame.get();
  }
  for (; frame != nullptr && frame->needs_text; frame = frame->opened_in->frame.get()) {
    if (!frame->is_unique || frame->items.is_empty()) continue;
    std::string text = text_;
    append_ending(at, text, frame);
    if (frame->items.contains(generated_item(text.substr(frame->item_begin)))) return frame;
  }
  return nullptr;
}

uint64_t JsonTokenMatcher::makes_new(const State& from) const {
  const JsonFrame* frame = from.context->frame.get();
  if (frame == nullptr || !frame->needs_text) return 0;
  if (assumes_new_) return kAllDiffer;
  uint64_t made = 0;
  const std::string text = decode_json_string(lexeme(from));
  for_each_unique(*from.context, [&](const JsonFrame& unique) {
    const uint32_t level = unique.num_unique - 1;
    if (level < kMostUnique && !unique.strings.contains(text)) made |= uint64_t{1} << level;
  });
  return made;
}

bool JsonTokenMatcher::avoids_repeats() {
  const State& at = states_.back();
  if (all_differ(at)) return true;
  // A string that may go on in very many ways can become a new one.
  const bool is_string = at.phase == Phase::kInString || at.phase == Phase::kInKey;
  if (is_string && at.lexer >= 0 && learnt().strings.is_endless(at.lexer)) return true;
  return find_ending_without_repeats();
}

// Whether the newest byte is that of the ending that the place before it has, which then goes on.
bool JsonTokenMatcher::follows_ending() {
  const State newest = states_.back();
  const char byte = text_.back();
  pop(1);
  std::string ending = text_;
  append_ending(states_.back(), ending, nullptr);
  ending.erase(0, text_.size());
  states_.push_back(newest);
  text_ += byte;
  if (!ending.starts_with(byte)) return false;
  ending.erase(0, 1);
  // Nothing in it repeats an item if all of it is taken.
  size_t taken = 0;
  while (taken < ending.size() && advance_unchecked(static_cast<uint8_t>(ending[taken]))) ++taken;
  const bool is_whole = taken == ending.size() && ends_here(states_.back());
  pop(taken);
  if (is_whole) states_.back().ending = std::make_shared<const std::string>(std::move(ending));
  return is_whole;
}

bool JsonTokenMatcher::find_ending_without_repeats() {
  constexpr size_t kMaxDepth = 4;
  constexpr size_t kMaxTries = 2000;
  if (repeated_in(states_.back()) == nullptr) return true;
  const size_t before = text_.size();
  size_t num_tries = kMaxTries;
  if (!find_detour(kMaxDepth, num_tries)) return false;
  // The newest state is that at the end of the way round.
  std::string text = text_;
  append_ending(states_.back(), text, nullptr);
  pop(text_.size() - before);
  states_.back().ending = std::make_shared<const std::string>(text.substr(before));
  return true;
}

// Takes bytes behind which the shortest ending repeats nothing; takes none if it finds none.
bool JsonTokenMatcher::find_detour(size_t depth, size_t& num_tries) {
  constexpr std::string_view kBytes =
      "\"abcdefghijklmnopqrstuvwxyz0123456789,{[.-_:ABCDEFGHIJKLMNOPQRSTUVWXYZ}]/";
  std::string open;
  const auto tries = [&](char byte) {
    if (num_tries == 0) return false;
    --num_tries;
    if (!advance_unchecked(static_cast<uint8_t>(byte))) return false;
    if (repeated_in(states_.back()) == nullptr) return true;
    pop(1);
    open += byte;
    return false;
  };
  for (const char byte : kBytes) {
    if (tries(byte)) return true;
  }
  // Other characters where there are only those.
  for (int byte = 0x80; byte < 0x100 && open.empty(); ++byte) {
    if (tries(static_cast<char>(byte))) return true;
  }
  if (num_tries == 0) return false;
  // Where there is one way only, it costs nothing.
  const size_t left = open.size() == 1 ? depth : depth - 1;
  if (left == 0) return false;
  for (const char byte : open) {
    advance_unchecked(static_cast<uint8_t>(byte));
    if (find_detour(left, num_tries)) return true;
    pop(1);
  }
  return false;
}

}  // namespace quire::grammar
