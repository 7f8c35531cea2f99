#include "engine/answer_masks.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "grammar/tokens/token_trie.h"

namespace quire {
namespace {

// What was sampled for a place in an output.
struct Note {
  bool complete = false;
  bool steered = false;
};

// How a request's answers end other than by their constraint.
struct AnswerEnds {
  std::vector<int32_t> token_ids;  // end-of-sequence and stop tokens
  size_t min_tokens = 0;           // they may not come before
  size_t room = 0;                 // the most tokens

  bool contains(int32_t token) const {
    return std::ranges::find(token_ids, token) != token_ids.end();
  }
  bool may_come_at(size_t position) const { return !token_ids.empty() && position >= min_tokens; }
};

bool is_empty(std::span<const uint32_t> mask) {
  return std::ranges::all_of(mask, [](uint32_t word) { return word == 0; });
}

// Fills `mask` with the tokens that may come at a place of an output, ends included.
class MaskFiller {
 public:
  MaskFiller(AnswerConstraint& constraint, const AnswerEnds& ends, size_t position)
      : constraint_(constraint), ends_(ends), position_(position) {}

  // Returns AnswerConstraint::allow_tokens()'s number.
  size_t allow(std::vector<uint32_t>& mask) {
    size_t tokens_behind = SIZE_MAX;
    fill(mask, [&](grammar::TokenMask bits) { tokens_behind = constraint_.allow_tokens(bits); });
    return tokens_behind;
  }
  void allow_in_time(std::vector<uint32_t>& mask) {
    const size_t tokens_left = ends_.room - position_;
    fill(mask, [this, tokens_left](grammar::TokenMask bits) {
      constraint_.allow_tokens_in_time(tokens_left, bits);
    });
  }

 private:
  template <typename Allow>
  void fill(std::vector<uint32_t>& mask, const Allow& allow_text) {
    std::ranges::fill(mask, 0);
    allow_text(mask);
    if (constraint_.can_end()) {
      if (!ends_.may_come_at(position_)) return;
      for (const int32_t id : ends_.token_ids) grammar::allow(mask, id);
      return;
    }
    for (const int32_t id : ends_.token_ids) {
      mask[static_cast<size_t>(id) / 32] &= ~(uint32_t{1} << (static_cast<size_t>(id) % 32));
    }
    // A stop token may be the only way on. Then it cuts the answer, as the caller asked for.
    if (is_empty(mask)) allow_text(mask);
  }

  AnswerConstraint& constraint_;
  const AnswerEnds& ends_;
  size_t position_;
};

// One output: its constraint behind the tokens that were sampled, and notes of these.
class AnswerState {
 public:
  // `room`: the most tokens of the output.
  AnswerState(AnswerLanguagePtr language, size_t room)
      : language_(language), constraint_(std::move(language)), room_(room) {}

  std::mutex mutex;

  // Brings the constraint behind `output`. False if it does not allow that.
  bool advance_to(std::span<const int32_t> output) {
    if (!is_ahead(output)) {
      constraint_ = AnswerConstraint(language_);
      taken_.clear();
    }
    while (taken_.size() < output.size()) {
      if (!take(output[taken_.size()])) return false;
    }
    return true;
  }
  // A copy of it behind `output`, which ends in drafts.
  std::optional<AnswerConstraint> try_out(std::span<const int32_t> output) const {
    std::optional<AnswerConstraint> tried;
    size_t position = 0;
    if (is_ahead(output)) {
      tried.emplace(constraint_);
      position = taken_.size();
    } else {
      tried.emplace(language_);
    }
    for (; position < output.size(); ++position) {
      if (!tried->accept(output[position], tokens_left(position))) return std::nullopt;
    }
    return tried;
  }
  bool take(int32_t token) {
    if (!constraint_.accept(token, tokens_left(taken_.size()))) return false;
    taken_.push_back(token);
    return true;
  }
  AnswerConstraint& constraint() { return constraint_; }
  size_t num_taken() const { return taken_.size(); }
  // From a place of the output on.
  size_t tokens_left(size_t position) const { return position < room_ ? room_ - position : 1; }
  size_t num_reported() const { return num_reported_; }
  // Takes the token at a place of the output, unless it did before: masks of drafts take none.
  void follow(size_t position, int32_t token) {
    if (position == taken_.size()) take(token);
  }

  void note(size_t position, Note note) { notes_[position] = note; }
  Note take_note() {
    const auto found = notes_.find(num_reported_);
    const Note note = found == notes_.end() ? Note() : found->second;
    ++num_reported_;
    notes_.erase(notes_.begin(), notes_.lower_bound(num_reported_));
    return note;
  }

 private:
  bool is_ahead(std::span<const int32_t> output) const {
    return output.size() >= taken_.size() &&
           std::ranges::equal(taken_, output.first(taken_.size()));
  }

  AnswerLanguagePtr language_;
  AnswerConstraint constraint_;
  size_t room_;
  std::vector<int32_t> taken_;
  std::map<size_t, Note> notes_;  // by place in the output
  size_t num_reported_ = 0;
};

}  // namespace

int64_t room_for_answer(const Request& request, int64_t max_model_len) {
  const int64_t room = max_model_len - request.num_prompt_tokens();
  return std::min(request.params.max_tokens.value_or(room), room);
}

struct AnswerMasks::RequestAnswers {
  AnswerEnds ends;
  // The sampler's own ways to forbid a token are left: then none is forced.
  bool may_force = true;
  std::vector<std::unique_ptr<AnswerState>> outputs;

  // The token that has to come at a place of an output: the tokenizer's, where the text has no
  // choice, if it ends no answer and leaves room for an end.
  std::optional<int32_t> forced_token(AnswerConstraint& constraint, size_t position) const {
    if (!may_force) return std::nullopt;
    const std::optional<int32_t> token = constraint.forced_token();
    if (!token || ends.contains(*token)) return std::nullopt;
    return constraint.leads_to_end(*token, ends.room - position) ? token : std::nullopt;
  }
};

class AnswerMasks::Row final : public RowMask {
 public:
  // `tried`: where the constraint is, if it is not the output's own.
  Row(std::shared_ptr<RequestAnswers> answers, AnswerState& state,
      std::optional<AnswerConstraint> tried, size_t position, size_t mask_words)
      : answers_(std::move(answers)),
        state_(state),
        tried_(std::move(tried)),
        position_(position),
        mask_(mask_words) {
    if (const auto token = answers_->forced_token(constraint(), position_)) {
      grammar::allow(mask_, *token);
      has_time_ = true;
      return;
    }
    const size_t tokens_behind = MaskFiller(constraint(), ends(), position_).allow(mask_);
    has_time_ = tokens_left() - 1 >= tokens_behind;
  }

  std::span<const uint32_t> allowed() const override { return mask_; }

  bool takes_all() const override { return has_time_; }

  bool take(int32_t token) override {
    const std::lock_guard lock(state_.mutex);
    const bool is_end = ends().contains(token);
    if (!has_time_ && !is_end && !constraint().leads_to_end(token, tokens_left())) {
      MaskFiller(constraint(), ends(), position_).allow_in_time(mask_);
      has_time_ = is_steered_ = true;
      return false;
    }
    Note note{.steered = is_steered_};
    if (!is_end && (tried_ ? tried_->accept(token, tokens_left()) : state_.take(token))) {
      const bool is_stuck = cannot_go_on();
      note.complete = is_stuck || constraint().must_end();
      note.steered |= is_stuck;
    }
    state_.note(position_, note);
    return true;
  }

 private:
  const AnswerEnds& ends() const { return answers_->ends; }
  size_t tokens_left() const { return ends().room - position_; }
  // The output's own constraint does not move between the making of a row and take().
  AnswerConstraint& constraint() { return tried_ ? *tried_ : state_.constraint(); }

  // Whether, behind the token that was taken, the text can end and could not go on to another end
  // in time, and no token may come that says so.
  bool cannot_go_on() {
    const size_t left = tokens_left() - 1;
    if (left == 0 || !constraint().can_end() || constraint().must_end()) return false;
    if (ends().may_come_at(position_ + 1)) return false;
    std::vector<uint32_t> mask(mask_.size());
    constraint().allow_tokens_in_time(left, mask);
    return is_empty(mask);
  }

  std::shared_ptr<RequestAnswers> answers_;
  AnswerState& state_;
  std::optional<AnswerConstraint> tried_;
  size_t position_;
  std::vector<uint32_t> mask_;
  bool has_time_ = false;  // an end can be reached behind each token of mask_
  bool is_steered_ = false;
};

// The mask of an output that its constraint does not allow: nothing may come, and the request
// fails.
class NothingAllowed final : public RowMask {
 public:
  explicit NothingAllowed(size_t mask_words) : mask_(mask_words) {}
  std::span<const uint32_t> allowed() const override { return mask_; }
  bool takes_all() const override { return true; }
  bool take(int32_t) override { return true; }

 private:
  std::vector<uint32_t> mask_;
};

AnswerMasks::AnswerMasks(int64_t vocab_size, int64_t max_model_len,
                         std::vector<int32_t> eos_token_ids)
    : mask_words_(grammar::mask_words(static_cast<size_t>(vocab_size))),
      max_model_len_(max_model_len),
      eos_token_ids_(std::move(eos_token_ids)) {}

AnswerMasks::~AnswerMasks() = default;

void AnswerMasks::add(const Request& request, AnswerLanguagePtr language) {
  const SamplingParams& params = request.params;
  auto answers = std::make_shared<RequestAnswers>();
  answers->ends.token_ids = params.stop_token_ids;
  if (!params.ignore_eos) {
    answers->ends.token_ids.insert(answers->ends.token_ids.end(), eos_token_ids_.begin(),
                                   eos_token_ids_.end());
  }
  answers->may_force = !request.has_logits_processors;
  answers->ends.min_tokens = static_cast<size_t>(params.min_tokens);
  answers->ends.room = static_cast<size_t>(room_for_answer(request, max_model_len_));
  for (int i = 0; i < params.n; ++i) {
    answers->outputs.push_back(std::make_unique<AnswerState>(language, answers->ends.room));
  }
  const std::lock_guard lock(mutex_);
  requests_[request.number] = std::move(answers);
}

void AnswerMasks::remove(uint64_t request_number) {
  const std::lock_guard lock(mutex_);
  requests_.erase(request_number);
}

std::shared_ptr<AnswerMasks::RequestAnswers> AnswerMasks::find(uint64_t request_number) const {
  const std::lock_guard lock(mutex_);
  const auto found = requests_.find(request_number);
  return found == requests_.end() ? nullptr : found->second;
}

std::unique_ptr<RowMask> AnswerMasks::at(const Request& request, uint32_t index,
                                         std::span<const int32_t> output, bool has_drafts) {
  const std::shared_ptr<RequestAnswers> answers = find(request.number);
  if (!answers || output.size() >= answers->ends.room) return nullptr;
  AnswerState& state = *answers->outputs[index];
  const std::lock_guard lock(state.mutex);
  std::optional<AnswerConstraint> tried;
  if (has_drafts) {
    tried = state.try_out(output);
    if (!tried) return nullptr;
  } else if (!state.advance_to(output)) {
    // What follows the end is nobody's; all else would be an answer without its constraint.
    if (answers->ends.contains(output[state.num_taken()])) return nullptr;
    return std::make_unique<NothingAllowed>(mask_words_);
  }
  if ((tried ? *tried : state.constraint()).must_end()) return nullptr;
  return std::make_unique<Row>(answers, state, std::move(tried), output.size(), mask_words_);
}

AnswerProgress AnswerMasks::progress(const Request& request, uint32_t index,
                                     std::span<const int32_t> token_ids) {
  AnswerProgress progress{.num_tokens = token_ids.size()};
  const std::shared_ptr<RequestAnswers> answers = find(request.number);
  if (!answers) return progress;
  AnswerState& state = *answers->outputs[index];
  const std::lock_guard lock(state.mutex);
  for (size_t i = 0; i < token_ids.size(); ++i) {
    if (!answers->ends.contains(token_ids[i])) state.follow(state.num_reported(), token_ids[i]);
    const Note note = state.take_note();
    progress.steered |= note.steered;
    if (!note.complete) continue;
    progress.num_tokens = i + 1;
    progress.complete = true;
    break;
  }
  return progress;
}

void AnswerMasks::cut_draft(const Request& request, uint32_t index,
                            std::vector<int32_t>& draft) const {
  const std::shared_ptr<RequestAnswers> answers = find(request.number);
  if (!answers || draft.empty()) return;
  AnswerState& state = *answers->outputs[index];
  const std::lock_guard lock(state.mutex);
  AnswerConstraint tried = state.constraint();
  size_t length = 0;
  while (length < draft.size() && !tried.must_end() && !answers->ends.contains(draft[length]) &&
         tried.accept(draft[length], state.tokens_left(state.num_taken() + length))) {
    ++length;
  }
  draft.resize(length);
}

std::vector<int32_t> AnswerMasks::forced_tokens(const Request& request, uint32_t index,
                                                size_t num_awaited, size_t most) const {
  std::vector<int32_t> tokens;
  const std::shared_ptr<RequestAnswers> answers = find(request.number);
  if (!answers) return tokens;
  AnswerState& state = *answers->outputs[index];
  const std::lock_guard lock(state.mutex);
  const size_t first = state.num_reported() + num_awaited;
  const size_t end = std::min(first + most, answers->ends.room);
  if (state.num_taken() > first) return tokens;
  std::optional<AnswerConstraint> tried;  // none: the output's own
  for (size_t position = state.num_taken(); position < end; ++position) {
    AnswerConstraint& constraint = tried ? *tried : state.constraint();
    if (constraint.must_end()) break;
    const std::optional<int32_t> token = answers->forced_token(constraint, position);
    if (!token) break;
    if (position >= first) tokens.push_back(*token);
    if (position + 1 == end) break;
    if (!tried) tried.emplace(state.constraint());
    if (!tried->accept(*token, state.tokens_left(position))) break;
  }
  return tokens;
}

}  // namespace quire
