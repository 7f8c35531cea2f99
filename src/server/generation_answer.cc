// The answer of a generation: fetching the engine's outputs, measuring them, sending them.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <random>
#include <utility>

#include "server/generation.h"
#include "server/run_on_worker.h"
#include "server/send_body.h"

namespace quire::server {
namespace {

// The body of an answer with more tokens is begun on a worker.
constexpr int64_t kMaxInlineTokens = 2048;

uint64_t random_seed() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

ApiError failure_of(const RequestOutput& output) {
  constexpr int64_t kRetryAfterSeconds = 1;
  return output.out_of_memory ? service_unavailable(output.error, kRetryAfterSeconds)
                              : server_error(output.error);
}

}  // namespace

void Generation::begin_answer() {
  FormatContext format;
  format.id = (kind_ == RequestKind::kChat ? "chatcmpl-" : "cmpl-") + record_.request_id;
  format.created =
      std::chrono::duration_cast<std::chrono::seconds>(record_.arrived.time_since_epoch()).count();
  format.model = prepared_.request.adapter.empty() ? context_.model.id : prepared_.request.adapter;
  format.tokenizer = context_.tokenizer;
  format.make_parser = [config = prepared_.parser] {
    OutputParserConfig own = config;
    own.next_tool_call_id = tool_call_ids(random_seed());
    return make_output_parser(std::move(own));
  };
  formatter_ = make_formatter(prepared_.request, std::move(format));
  // The engine and the formatter have what they need of it.
  prepared_.request.chat.clear();
  std::vector<std::string>().swap(prepared_.request.tool_parameters);
  for (auto& prompt : prepared_.request.prompts) prompt = std::string();
  budget_->lower_to(std::min(budget_->charged(), running_bytes_));
  std::string head = formatter_->begin();
  if (!prepared_.request.stream) return;
  http::Response response = response_head();
  response.content_type = content_type(prepared_.request);
  response.headers.emplace_back("Cache-Control", "no-cache");
  exchange_->on_drain([weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self || !std::exchange(self->paused_, false)) return;
    for (size_t i = 0; i < self->sources_.size(); ++i) self->fetch(i);
  });
  exchange_->begin_stream(std::move(response));
  record_.status = 200;
  if (!head.empty()) exchange_->write(std::move(head));
}

void Generation::fetch(size_t prompt_index) {
  try {
    while (prompt_index < sources_.size() && sources_[prompt_index] != nullptr && !paused_) {
      if (state_ == State::kRunning && prepared_.request.stream &&
          exchange_->buffered() > http::Exchange::kStreamHighWater) {
        paused_ = true;  // on_drain goes on
        break;
      }
      std::optional<RequestOutput> output = sources_[prompt_index]->try_next();
      if (!output) return;
      take(prompt_index, std::move(*output));
    }
    if (paused_) leave_engine_if_done();
  } catch (const EngineFailure& failure) {
    context_.engine_failed(failure.what());
    fail(server_error(fmt::format("The engine has failed: {}", failure.what())));
    drop_sources();
  } catch (...) {
    break_off(std::current_exception());
  }
}

void Generation::fetch_all() {
  for (size_t i = 0; i < sources_.size(); ++i) fetch(i);
}

void Generation::take(size_t prompt_index, RequestOutput output) {
  const bool last = output.finished;
  if (last) {  // whatever becomes of its output
    sources_[prompt_index].reset();
    --num_running_;
  }
  if (state_ == State::kRunning) {
    measure(prompt_index, output);
    if (!output.error.empty()) throw failure_of(output);
    if (!prepared_.request.stream) charge(output);
    if (expired_) mark_deadline(output);
    std::string text = formatter_->push(prompt_index, std::move(output));
    if (prepared_.request.stream && !text.empty()) exchange_->write(std::move(text));
    if (!cut_ && formatter_->done()) {
      cut_ = true;
      cancel_sources();
    }
  }
  if (last) source_ended();
}

// Only for whole answers: a stream keeps nothing that it has sent.
void Generation::charge(const RequestOutput& output) {
  budget_->charge(output_bytes(output), "its outputs");
  budget_->count_response(output_text_bytes(output));
}

void Generation::measure(size_t prompt_index, const RequestOutput& output) {
  measure_engine(prompt_index, output.metrics);
  const Clock::time_point now = Clock::now();
  std::optional<Clock::time_point>& last_of_prompt = last_outputs_[prompt_index];
  int64_t num_tokens = 0;
  for (const CompletionOutput& completion : output.outputs) {
    const auto num_new = static_cast<int64_t>(completion.token_ids.size());
    num_tokens += num_new;
    if (last_of_prompt) {
      context_.metrics.observe_inter_token(seconds_between(*last_of_prompt, now), num_new);
    }
  }
  if (num_tokens == 0) return;
  last_of_prompt = now;
  record_.output_tokens += num_tokens;
  context_.admission.charge_output(record_.client, num_tokens);
  context_.key_limits.charge_tokens(record_.owner, num_tokens);
  if (!last_output_) {
    const double before_engine = seconds_between(arrived_, submitted_);
    record_.queue_s = before_engine + output.metrics.queue_s;
    record_.ttft_s = before_engine + output.metrics.ttft_s;
    record_.prefill_s = record_.ttft_s - record_.queue_s;
  }
  record_.cached_tokens = formatter_->usage().cached_tokens;
  last_output_ = now;
}

// The engine's counts are since the request's beginning; the record sums over its prompts.
void Generation::measure_engine(size_t prompt_index, const RequestMetrics& metrics) {
  const RequestMetrics before = std::exchange(engine_metrics_[prompt_index], metrics);
  record_.steps += metrics.num_steps - before.num_steps;
  record_.preemptions += metrics.num_preemptions - before.num_preemptions;
  record_.draft_tokens += metrics.num_draft_tokens - before.num_draft_tokens;
  record_.accepted_draft_tokens +=
      metrics.num_accepted_draft_tokens - before.num_accepted_draft_tokens;
}

// The client asked for this limit, so ending here is no failure.
void Generation::mark_deadline(RequestOutput& output) const {
  for (CompletionOutput& completion : output.outputs) {
    if (completion.finish_reason != FinishReason::kAbort) continue;
    completion.finish_reason = FinishReason::kLength;
    completion.stop_reason = "timeout";
  }
}

void Generation::source_ended() {
  if (num_running_ > 0) return;
  leave_engine();
  if (state_ != State::kRunning) {
    end();
  } else if (prepared_.request.stream) {
    if (std::string text = formatter_->end(); !text.empty()) exchange_->write(std::move(text));
    exchange_->finish();
    end();
  } else if (formatter_->usage().completion_tokens > kMaxInlineTokens) {
    answer_from_worker();
  } else {
    answer(formatter_->end());
  }
}

// Writing down a long answer with log-probabilities takes long enough to hold up other streams.
void Generation::answer_from_worker() {
  const auto first_piece = std::make_shared<std::string>();
  const auto write = [self = shared_from_this(), first_piece] {
    *first_piece = self->formatter_->end();
  };
  const auto done = [self = shared_from_this(), first_piece](const std::exception_ptr& failure) {
    if (failure) return self->break_off(failure);
    self->guarded([&] { self->answer(std::move(*first_piece)); });
  };
  run_on_worker(context_, context_.workers, write, done, record_.client);
  state_ = State::kWriting;  // nothing else touches the formatter now
  context_.admission.pump();
}

void Generation::answer(std::string first_piece) {
  http::Response response = response_head();
  response.content_type = content_type(prepared_.request);
  record_.status = 200;
  send_body(exchange_, std::move(response), std::move(first_piece), formatter_, context_.workers,
            record_.client);
  end();
}

}  // namespace quire::server
