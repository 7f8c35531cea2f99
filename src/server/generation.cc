#include "server/generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <utility>

namespace quire::server {
namespace {

// A longer answer is written down on a worker.
constexpr int64_t kMaxInlineTokens = 2048;

double seconds_between(Generation::Clock::time_point from, Generation::Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

uint64_t random_seed() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

}  // namespace

Generation::Generation(const ServiceContext& context, std::shared_ptr<http::Exchange> exchange,
                       RequestKind kind, RequestRecord record, http::Headers headers,
                       std::function<void(Generation&)> on_end)
    : context_(context),
      exchange_(std::move(exchange)),
      kind_(kind),
      record_(std::move(record)),
      headers_(std::move(headers)),
      on_end_(std::move(on_end)) {}

void Generation::begin() {
  const EngineStats stats = context_.engine.stats();
  record_.running_at_arrival = stats.num_running;
  record_.waiting_at_arrival = stats.num_waiting + context_.admission.num_queued();
  try {
    context_.admission.arrive(record_.reject_reason);
  } catch (const ApiError& error) {
    state_ = State::kDraining;  // it holds no place
    refuse(error);
    end();
    return;
  }
  watch_client();
  prepare();
}

void Generation::watch_client() {
  exchange_->on_closed([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->client_gone();
  });
}

void Generation::prepare() {
  auto body = std::make_shared<std::string>(exchange_->take_body());
  context_.workers.run([self = shared_from_this(), body]() mutable {
    if (self->exchange_->closed()) return;  // client_gone() ends it: no work without a reader
    // What comes of it is carried to the I/O thread, be it an error.
    const ServiceContext& context = self->context_;
    std::shared_ptr<PreparedGeneration> result;
    std::shared_ptr<ApiError> error;
    try {
      result =
          std::make_shared<PreparedGeneration>(prepare_generation(self->kind_, *body, context));
    } catch (const ApiError& refused) {
      error = std::make_shared<ApiError>(refused);
    } catch (const std::exception& failed) {
      error = std::make_shared<ApiError>(server_error(failed.what()));
    }
    context.post([self = std::move(self), result, error] {
      if (self->state_ != State::kPreparing) return;
      if (error) {
        self->refuse(*error);
        self->give_up();
      } else {
        self->prepared(std::move(*result));
      }
    });
  });
}

void Generation::prepared(PreparedGeneration prepared) {
  prepared_ = std::move(prepared);
  const GenerationRequest& request = prepared_.request;
  if (!request.request_id.empty()) record_.request_id = request.request_id;
  if (request.resumable) {
    exchange_ = context_.streams.adopt(std::move(exchange_), record_.owner, record_.request_id);
    watch_client();
  }
  record_.model = request.model;
  record_.stream = request.stream;
  record_.n = request.sampling.n;
  record_.max_tokens = request.sampling.max_tokens;
  record_.temperature = request.sampling.temperature;
  record_.top_p = request.sampling.top_p;
  record_.timeout_s = request.timeout_s;
  record_.prompt_tokens = prepared_.num_prompt_tokens();
  context_.key_limits.charge_tokens(record_.owner, record_.prompt_tokens);
  for (const std::string& warning : request.warnings) {
    context_.log.log(LogLevel::kWarning, warning, record_.request_id);
  }
  enqueue();
}

void Generation::enqueue() {
  Admission::Waiting waiting;
  waiting.client = record_.client;
  waiting.num_sequences = static_cast<int64_t>(prepared_.request.num_choices());
  waiting.num_prompt_tokens = record_.prompt_tokens;
  waiting.start = [self = shared_from_this()] { self->run(); };
  waiting.weight = context_.config.client_weights.of(record_.client);
  state_ = State::kQueued;
  ticket_ = context_.admission.enqueue(std::move(waiting), prepared_.request.priority);
  set_deadline();
  context_.admission.pump();
}

void Generation::set_deadline() {
  const auto set = [this](Clock::time_point due, void (Generation::*passed)()) {
    return context_.timers.at(due, [weak = weak_from_this(), post = context_.post, passed] {
      post([weak, passed] {
        if (const auto self = weak.lock()) (self.get()->*passed)();
      });
    });
  };
  const auto after = [this](double seconds) {
    return arrived_ + std::chrono::duration_cast<Clock::duration>(
                          std::chrono::duration<double>(std::min(seconds, 1e8)));
  };
  if (prepared_.request.timeout_s) {
    deadline_ = set(after(*prepared_.request.timeout_s), &Generation::deadline_passed);
  }
  if (context_.config.max_queue_time_s > 0) {
    queue_limit_ = set(after(context_.config.max_queue_time_s), &Generation::queue_time_passed);
  }
}

void Generation::run() {
  state_ = State::kRunning;
  has_place_ = true;
  if (queue_limit_) context_.timers.cancel(*std::exchange(queue_limit_, std::nullopt));
  try {
    if (submit_prompts()) begin_answer();
  } catch (const std::exception& error) {
    break_off(error.what());
  }
}

bool Generation::submit_prompts() {
  submitted_ = Clock::now();
  last_outputs_.resize(prepared_.prompts.size());
  engine_metrics_.resize(prepared_.prompts.size());
  RequestOptions options;
  options.cache_salt = prepared_.request.cache_salt;
  if (!context_.config.share_cache_between_keys) {
    options.cache_salt = record_.owner + '\0' + options.cache_salt;
  }
  options.client = std::hash<std::string>()(record_.client);
  options.client_weight = context_.config.client_weights.of(record_.client);
  options.priority = prepared_.request.priority;
  try {
    for (size_t i = 0; i < prepared_.prompts.size(); ++i) {
      auto on_ready = [ready = context_.ready, weak = weak_from_this(), i] { ready->add(weak, i); };
      sources_.push_back(context_.engine.submit(std::move(prepared_.prompts[i]),
                                                prepared_.request.sampling, options,
                                                std::move(on_ready)));
      ++num_running_;
    }
    return true;
  } catch (const EngineFailure& failure) {
    context_.engine_failed(failure.what());
    refuse(server_error(fmt::format("The engine has failed: {}", failure.what())));
  } catch (const Error& error) {
    refuse(invalid_request(error.what()));
  }
  give_up();
  return false;
}

http::Response Generation::response_head() const {
  http::Response response;
  response.headers = headers_;
  response.headers.emplace_back("X-Request-Id", record_.request_id);
  return response;
}

void Generation::begin_answer() {
  FormatContext format;
  format.id = (kind_ == RequestKind::kChat ? "chatcmpl-" : "cmpl-") + record_.request_id;
  format.created =
      std::chrono::duration_cast<std::chrono::seconds>(record_.arrived.time_since_epoch()).count();
  format.model = context_.model.id;
  format.tokenizer = context_.tokenizer;
  const ToolChoice choice = prepared_.request.tool_choice;
  if (choice == ToolChoice::kRequired || choice == ToolChoice::kNamed) {
    forced_calls_.emplace(prepared_.request);
  }
  format.make_parser = [this, config = prepared_.parser] {
    OutputParserConfig own = config;
    own.next_tool_call_id = tool_call_ids(random_seed());
    auto parser = make_output_parser(std::move(own));
    return forced_calls_ ? forced_calls_->watch(std::move(parser)) : std::move(parser);
  };
  formatter_ = make_formatter(prepared_.request, std::move(format));
  std::string head = formatter_->begin();
  if (!prepared_.request.stream) return;
  record_.status = 200;
  http::Response response = response_head();
  response.content_type = content_type(prepared_.request);
  response.headers.emplace_back("Cache-Control", "no-cache");
  exchange_->on_drain([weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self || !std::exchange(self->paused_, false)) return;
    for (size_t i = 0; i < self->sources_.size(); ++i) self->fetch(i);
  });
  exchange_->begin_stream(std::move(response));
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
    for (auto& source : sources_) source.reset();
    num_running_ = 0;
    end();
  } catch (const std::exception& error) {
    break_off(error.what());
  }
}

// A client that reads slowly holds no place in the engine once that has done its work.
void Generation::leave_engine_if_done() {
  const bool done = std::ranges::all_of(
      sources_, [](const auto& source) { return source == nullptr || source->ended(); });
  if (!done || !has_place_) return;
  leave_engine();
  context_.admission.pump();
}

void Generation::leave_engine() {
  if (!std::exchange(has_place_, false)) return;
  context_.admission.finished(record_.client, static_cast<int64_t>(prepared_.request.num_choices()),
                              Clock::now());
}

// Something that was not foreseen (no memory, say) ends this generation alone.
void Generation::break_off(const std::string& message) {
  fail(server_error(message));
  give_up();
}

void Generation::take(size_t prompt_index, RequestOutput output) {
  const bool last = output.finished;
  if (last) {  // whatever becomes of its output
    sources_[prompt_index].reset();
    --num_running_;
  }
  if (state_ == State::kRunning) {
    measure(prompt_index, output);
    if (!output.error.empty()) return break_off(output.error);
    if (expired_) mark_deadline(output);
    if (forced_calls_) mark_cut_calls(output);
    std::string text = formatter_->push(prompt_index, output);
    if (prepared_.request.stream && !text.empty()) exchange_->write(std::move(text));
    if (!cut_ && formatter_->done()) {
      cut_ = true;
      cancel_sources();
    }
  }
  if (last) source_ended();
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

// The engine counts from the request's beginning; the record adds up its prompts.
void Generation::measure_engine(size_t prompt_index, const RequestMetrics& metrics) {
  const RequestMetrics before = std::exchange(engine_metrics_[prompt_index], metrics);
  record_.steps += metrics.num_steps - before.num_steps;
  record_.preemptions += metrics.num_preemptions - before.num_preemptions;
  record_.draft_tokens += metrics.num_draft_tokens - before.num_draft_tokens;
  record_.accepted_draft_tokens +=
      metrics.num_accepted_draft_tokens - before.num_accepted_draft_tokens;
}

// The client asked for no more than this: that it ended here is no failure.
void Generation::mark_deadline(RequestOutput& output) const {
  for (CompletionOutput& completion : output.outputs) {
    if (completion.finish_reason != FinishReason::kAbort) continue;
    completion.finish_reason = FinishReason::kLength;
    completion.stop_reason = "timeout";
  }
}

void Generation::mark_cut_calls(const RequestOutput& output) {
  for (const CompletionOutput& completion : output.outputs) {
    if (completion.finish_reason && *completion.finish_reason != FinishReason::kStop) {
      forced_calls_->cut(static_cast<size_t>(completion.index));
    }
  }
}

void Generation::source_ended() {
  if (num_running_ > 0) return;
  leave_engine();
  const std::optional<ApiError> bad_call =
      state_ == State::kRunning && forced_calls_ ? forced_calls_->error() : std::nullopt;
  if (bad_call) fail(*bad_call);
  if (state_ != State::kRunning || bad_call) {
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
  state_ = State::kDraining;  // nothing else touches the formatter now
  context_.admission.pump();
  context_.workers.run([self = shared_from_this()]() mutable {
    const ServiceContext& context = self->context_;
    auto body = std::make_shared<std::string>();
    std::string failure;
    try {
      *body = self->formatter_->end();
    } catch (const std::exception& error) {
      failure = error.what();
    }
    context.post([self = std::move(self), body, failure] {
      if (failure.empty()) {
        self->answer(std::move(*body));
      } else {
        self->refuse(server_error(failure));
        self->end();
      }
    });
  });
}

void Generation::answer(std::string body) {
  http::Response response = response_head();
  response.content_type = content_type(prepared_.request);
  response.body = std::move(body);
  record_.status = 200;
  exchange_->respond(std::move(response));
  end();
}

void Generation::deadline_passed() {
  deadline_.reset();
  if (state_ == State::kQueued) {
    refuse(rate_limited("The request's timeout passed while it waited for its turn.",
                        context_.admission.retry_after_s()));
    record_.reject_reason = "queue_timeout";
    give_up();
  } else if (state_ == State::kRunning) {
    expired_ = true;
    cancel_sources();
  }
}

void Generation::queue_time_passed() {
  queue_limit_.reset();
  if (state_ != State::kQueued) return;
  record_.reject_reason = "queue_timeout";
  refuse(rate_limited(fmt::format("The request waited for {} s without getting its turn "
                                  "(--max-queue-time); try again later.",
                                  context_.config.max_queue_time_s),
                      context_.admission.retry_after_s()));
  give_up();
}

void Generation::client_gone() {
  if (state_ == State::kDraining || state_ == State::kEnded) return;
  record_.client_disconnected = true;
  if (record_.status == 0) record_.status = 499;
  record_.error = "The client closed the connection.";
  give_up();
}

void Generation::cut_short() {
  if (state_ == State::kRunning) {
    cancel_sources();
  } else if (state_ == State::kPreparing || state_ == State::kQueued) {
    refuse(service_unavailable("The server is shutting down.", 1));
    give_up();
  }
}

void Generation::give_up() {
  const State before = std::exchange(state_, State::kDraining);
  if (before == State::kPreparing) context_.admission.turn_away();
  if (before == State::kQueued) context_.admission.leave(ticket_);
  write_record();
  if (num_running_ == 0) {
    end();
    return;
  }
  paused_ = false;
  cancel_sources();
  for (size_t i = 0; i < sources_.size(); ++i) fetch(i);
}

void Generation::cancel_sources() {
  for (auto& source : sources_) {
    if (source != nullptr) source->cancel();
  }
}

void Generation::refuse(const ApiError& error) {
  record_.status = error.status;
  record_.error = error.what();
  http::Response response = response_head();
  response.status = error.status;
  if (error.retry_after_s) {
    response.headers.emplace_back("Retry-After", std::to_string(*error.retry_after_s));
  }
  response.body = error_body(error);
  exchange_->respond(std::move(response));
}

void Generation::fail(const ApiError& error) {
  if (state_ != State::kRunning) return;
  record_.finish_reason = "error";
  if (!prepared_.request.stream || record_.status == 0) {  // no head has been sent
    refuse(error);
  } else {
    record_.error = error.what();
    exchange_->write(formatter_->fail(error));
    exchange_->finish();
  }
  write_record();
}

void Generation::set_times(RequestRecord& record) const {
  record.total_s = seconds_between(arrived_, Clock::now());
  if (last_output_) {
    record.decode_s = std::max(0.0, seconds_between(arrived_, *last_output_) - record.ttft_s);
  }
}

std::optional<RequestRecord> Generation::facts() const {
  if (recorded_) return std::nullopt;
  RequestRecord facts = record_;
  facts.stage = state_ == State::kPreparing || state_ == State::kQueued ? RequestStage::kQueued
                                                                        : RequestStage::kRunning;
  set_times(facts);
  return facts;
}

void Generation::write_record() {
  if (std::exchange(recorded_, true)) return;
  set_times(record_);
  if (record_.client_disconnected) {
    record_.finish_reason = "abort";
  } else if (formatter_ != nullptr && record_.error.empty()) {
    record_.finish_reason = expired_ ? "timeout" : formatter_->finish_reason();
  }
  context_.metrics.record(record_);
  if (context_.config.log_requests) {
    context_.log.request(record_, LineDetail::kAllFacts);
  } else if (context_.config.access_log) {
    context_.log.request(record_);
  }
  if (context_.traces != nullptr) context_.traces->record(record_);
  context_.request_log.add(record_);
}

void Generation::end() {
  if (std::exchange(state_, State::kEnded) == State::kEnded) return;
  const auto self = shared_from_this();  // on_end_ lets go of it
  write_record();
  for (auto& timer : {deadline_, queue_limit_}) {
    if (timer) context_.timers.cancel(*timer);
  }
  leave_engine();
  on_end_(*this);
  context_.admission.pump();
}

}  // namespace quire::server
