#include "engine/output_processor.h"

#include <algorithm>
#include <span>
#include <utility>

namespace quire {
namespace {

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

PositionLogprobs to_position_logprobs(const TokenLogprobs& logprobs, const Tokenizer* tokenizer) {
  PositionLogprobs result;
  result.reserve(logprobs.token_ids.size());
  for (size_t i = 0; i < logprobs.token_ids.size(); ++i) {
    Logprob entry{logprobs.token_ids[i], logprobs.logprobs[i], logprobs.ranks[i], {}};
    // Models pad their vocabulary past the tokenizer's.
    if (tokenizer != nullptr && entry.token_id < tokenizer->vocab_size()) {
      entry.decoded_token = tokenizer->decode(std::span(&entry.token_id, 1));
    }
    result.push_back(std::move(entry));
  }
  return result;
}

CompletionState::CompletionState(int index, const SamplingParams& params,
                                 const Tokenizer* tokenizer)
    : params_(params), tokenizer_(tokenizer), stops_(params.stop) {
  output_.index = index;
  if (tokenizer != nullptr) detokenizer_.emplace(*tokenizer, params.skip_special_tokens);
}

TakenTokens CompletionState::append(const SequenceUpdate& update, const AnswerProgress& progress) {
  TakenTokens taken;
  output_.steered_to_end |= progress.steered;
  for (size_t i = 0; i < update.token_ids.size() && !taken.stopped; ++i) {
    if (params_.logprobs) {
      output_.logprobs.push_back(to_position_logprobs(update.logprobs[i], tokenizer_));
    }
    const bool is_last = i + 1 == update.token_ids.size();
    taken.stopped = take_token(update.token_ids[i], is_last ? update.end : std::nullopt,
                               is_last && progress.complete);
    ++taken.count;
  }
  return taken;
}

bool CompletionState::take_token(int32_t token_id, const std::optional<SequenceEnd>& end,
                                 bool complete) {
  output_.token_ids.push_back(token_id);
  const bool stopped = end && end->reason == FinishReason::kStop;
  if (stopped && end->stop_token_id) output_.stop_reason = std::to_string(*end->stop_token_id);
  if (detokenizer_ && (!stopped || params_.include_stop_str_in_output)) {
    output_.text += detokenizer_->push(token_id);
  }
  if (end || complete) {
    finish(complete ? FinishReason::kStop : end->reason);
    return !end;
  }
  if (check_stop_strings()) {
    output_.finish_reason = FinishReason::kStop;
    return true;
  }
  return false;
}

bool CompletionState::check_stop_strings() {
  if (static_cast<int64_t>(output_.token_ids.size()) < params_.min_tokens) {
    stops_.skip(output_.text);
    return false;
  }
  const std::optional<StopMatcher::Match> match = stops_.find(output_.text);
  if (!match) return false;
  output_.text.resize(params_.include_stop_str_in_output ? match->end : match->begin);
  output_.stop_reason = *match->stop;
  return true;
}

void CompletionState::finish(FinishReason reason) {
  if (detokenizer_) output_.text += detokenizer_->finish();
  // The last token may complete a stop string as well as reach a limit.
  const bool stopped = reason != FinishReason::kAbort && check_stop_strings();
  output_.finish_reason = stopped ? FinishReason::kStop : reason;
  const bool is_given_stop = stopped || !output_.stop_reason.empty();
  if (output_.steered_to_end && reason == FinishReason::kStop && !is_given_stop) {
    output_.finish_reason = FinishReason::kLength;
  }
}

void CompletionState::abort() {
  if (!finished()) finish(FinishReason::kAbort);
}

CompletionOutput CompletionState::take(bool delta) {
  const size_t text_end = finished() ? output_.text.size() : stops_.safe_length(output_.text);
  CompletionOutput result;
  result.index = output_.index;
  result.finish_reason = output_.finish_reason;
  result.stop_reason = output_.stop_reason;
  result.steered_to_end = output_.steered_to_end;
  const size_t text_begin = delta ? std::min(text_given_, text_end) : 0;
  const auto token_begin = static_cast<std::ptrdiff_t>(delta ? tokens_given_ : 0);
  result.text = output_.text.substr(text_begin, text_end - text_begin);
  result.token_ids.assign(output_.token_ids.begin() + token_begin, output_.token_ids.end());
  if (params_.logprobs) {
    result.logprobs.assign(output_.logprobs.begin() + token_begin, output_.logprobs.end());
  }
  text_given_ = std::max(text_given_, text_end);
  tokens_given_ = output_.token_ids.size();
  return result;
}

RequestState::RequestState(std::shared_ptr<const Request> request, Clock::time_point arrival,
                           std::vector<SequenceId> sequence_ids, const Tokenizer* tokenizer)
    : request_(std::move(request)),
      arrival_(arrival),
      sequence_ids_(std::move(sequence_ids)),
      tokenizer_(tokenizer),
      num_preemptions_(sequence_ids_.size()) {
  for (size_t i = 0; i < sequence_ids_.size(); ++i) {
    completions_.emplace_back(static_cast<int>(i), request_->params, tokenizer);
  }
  if (request_->params.prompt_logprobs) prompt_logprobs_.emplace_back();
}

void RequestState::mark_scheduled(uint64_t step, size_t num_drafts, Clock::time_point now) {
  if (num_drafts > 0) ++metrics_.num_drafts;
  metrics_.num_draft_tokens += static_cast<int64_t>(num_drafts);
  const uint64_t before = std::exchange(last_step_, step);
  if (before == step) return;
  ++metrics_.num_steps;
  if (before == 0) metrics_.queue_s = seconds_between(arrival_, now);
}

void RequestState::mark_preemptions(size_t index, int64_t num_preemptions) {
  metrics_.num_preemptions += num_preemptions - num_preemptions_[index];
  num_preemptions_[index] = num_preemptions;
}

TakenTokens RequestState::append(size_t index, const SequenceUpdate& update, Clock::time_point now,
                                 const AnswerProgress& progress, bool had_forced) {
  if (index == 0) {
    num_cached_tokens_ = update.num_cached_tokens;
    for (const TokenLogprobs& position : update.prompt_logprobs) {
      prompt_logprobs_.push_back(to_position_logprobs(position, tokenizer_));
    }
  }
  mark_preemptions(index, update.num_preemptions);
  if (update.token_ids.empty()) return {};
  changed_ = true;
  metrics_.total_s = seconds_between(arrival_, now);
  if (!has_token_) metrics_.ttft_s = metrics_.total_s;
  has_token_ = true;
  const TakenTokens taken = completions_[index].append(update, progress);
  // A step brings one token that it sampled, and before it the drafts or forced text that it kept.
  // A stop string may end the answer before the last of them.
  (had_forced ? metrics_.num_forced_tokens : metrics_.num_accepted_draft_tokens) +=
      std::min(taken.count, std::ssize(update.token_ids) - 1);
  return taken;
}

void RequestState::abort() {
  for (CompletionState& completion : completions_) completion.abort();
  changed_ = true;
}

void RequestState::fail(std::string error, bool out_of_memory) {
  error_ = std::move(error);
  out_of_memory_ = out_of_memory;
  abort();
}

bool RequestState::finished() const {
  return std::all_of(completions_.begin(), completions_.end(),
                     [](const CompletionState& completion) { return completion.finished(); });
}

bool RequestState::wants_output() {
  const bool wanted = changed_ && (finished() || request_->output_kind != OutputKind::kFinalOnly);
  changed_ = false;
  return wanted;
}

RequestOutput RequestState::take_output() {
  const bool delta = request_->output_kind == OutputKind::kDelta;
  RequestOutput output;
  output.request_id = request_->id;
  if (!delta || !std::exchange(prompt_given_, true)) {
    output.prompt = request_->prompt;
    output.prompt_token_ids = request_->prompt_token_ids;
    // They may be large, and deltas give them only here.
    output.prompt_logprobs = delta ? std::move(prompt_logprobs_) : prompt_logprobs_;
  }
  for (CompletionState& completion : completions_) output.outputs.push_back(completion.take(delta));
  output.num_cached_tokens = num_cached_tokens_;
  output.finished = finished();
  output.error = error_;
  output.out_of_memory = out_of_memory_;
  output.metrics = metrics_;
  return output;
}

}  // namespace quire
