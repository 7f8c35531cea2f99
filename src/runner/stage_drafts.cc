#include "runner/stage_drafts.h"

#include <algorithm>
#include <array>
#include <bit>
#include <tuple>

#include "base/check.h"
#include "base/thread_pool.h"
#include "core/stream.h"

namespace quire {
namespace {

using TimeWords = std::array<int32_t, sizeof(DraftTimes) / sizeof(int32_t)>;
constexpr size_t kTimeWords = std::tuple_size_v<TimeWords>;

// Of a step on a GPU: the drafts' times, and whether they are the first of their kind.
using StepWords = std::array<int32_t, kTimeWords + 1>;

Tensor tensor_of(StepWords& words) {
  return Tensor(words.data(), DType::kInt32, {std::ssize(words)});
}

// Where the drafts of a drafter are that a chunk has; empty where it has none.
std::span<int32_t> drafts_of(const StepSequence& sequence) {
  const std::vector<int32_t>& asked = sequence.chunk.draft_token_ids;
  if (asked.empty() || asked.front() != kDraftOfRunner) return {};
  return std::span(sequence.state.output_token_ids).last(asked.size());
}

}  // namespace

std::vector<int32_t> pack_drafts(std::span<const StepSequence> sequences, const DraftTimes& times) {
  std::vector<int32_t> packed;
  for (const StepSequence& sequence : sequences) {
    const std::span<const int32_t> drafts = drafts_of(sequence);
    packed.insert(packed.end(), drafts.begin(), drafts.end());
  }
  const auto words = std::bit_cast<TimeWords>(times);
  packed.insert(packed.end(), words.begin(), words.end());
  return packed;
}

std::vector<int32_t> room_for_drafts(std::span<const StepSequence> sequences) {
  size_t count = kTimeWords;
  for (const StepSequence& sequence : sequences) count += drafts_of(sequence).size();
  return std::vector<int32_t>(count);
}

DraftTimes unpack_drafts(std::span<const int32_t> packed, std::span<const StepSequence> sequences) {
  for (const StepSequence& sequence : sequences) {
    const std::span<int32_t> drafts = drafts_of(sequence);
    check(packed.size() >= drafts.size() + kTimeWords, "every draft of the step was sent");
    std::ranges::copy(packed.first(drafts.size()), drafts.begin());
    packed = packed.subspan(drafts.size());
  }
  check(packed.size() == kTimeWords, "the times follow the drafts");
  TimeWords words;
  std::ranges::copy(packed, words.begin());
  return std::bit_cast<DraftTimes>(words);
}

void send_step_times(Communicator& pipeline, const StepTimes& times) {
  StepWords words = {};
  std::ranges::copy(std::bit_cast<TimeWords>(times.drafts), words.begin());
  words.back() = times.has_first_drafts_of_kind ? 1 : 0;
  ThreadPool pool(1);
  Stream stream(pool);
  pipeline.send(stream, tensor_of(words), pipeline.size() - 1);
}

StepTimes receive_step_times(Communicator& pipeline) {
  StepWords words = {};
  ThreadPool pool(1);
  Stream stream(pool);
  pipeline.receive(stream, tensor_of(words), 0);
  TimeWords drafts;
  std::copy_n(words.begin(), kTimeWords, drafts.begin());
  return {.gpu_s = 0,
          .drafts = std::bit_cast<DraftTimes>(drafts),
          .has_first_drafts_of_kind = words.back() != 0};
}

}  // namespace quire
