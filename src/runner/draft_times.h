#pragma once
// What a step's drafts took.
//
// Thread safety: a plain value.

namespace quire {

// In seconds.
struct DraftTimes {
  double reading_s = 0;  // of text that the drafter had not read, but for the newest tokens
  double drafting_s = 0;
};

}  // namespace quire
