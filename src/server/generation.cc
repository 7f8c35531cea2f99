#include "server/generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include "server/constrain_answer.h"
#include "server/run_on_worker.h"

namespace quire::server {
namespace {

// Reports a request that has ended to the metrics, the log and the traces.
void report(const ServiceContext& context, const RequestRecord& record) {
  context.metrics.record(record);
  if (context.config.log_requests) {
    context.log.request(record, LineDetail::kAllFacts);
  } else if (context.config.access_log) {
    context.log.request(record);
  }
  if (context.traces != nullptr) context.traces->record(record);
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
      on_end_(std::move(on_end)),
      budget_(std::make_shared<RequestBudget>(context.memory, context.config.max_response_bytes,
                                              exchange_->take_charge())) {}

void Generation::begin() {
  guarded([this] {
    const EngineStats stats = context_.engine.stats();
    record_.running_at_arrival = stats.num_running;
    record_.waiting_at_arrival = stats.num_waiting + context_.admission.num_queued();
    context_.admission.arrive(record_.reject_reason);
    state_ = State::kPreparing;
    watch_client();
    prepare();
  });
}

void Generation::watch_client() {
  exchange_->on_closed([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->client_gone();
  });
}

void Generation::prepare() {
  struct Work {
    std::shared_ptr<RequestBudget> budget;  // ends after what it stands for
    std::string body;
    PreparedGeneration prepared;
  };
  const auto work = std::make_shared<Work>();
  work->body = exchange_->take_body();
  work->budget = std::move(budget_);  // the worker's until it is done
  const auto prepare = [self = shared_from_this(), work] {
    // client_gone() ends it: no work without a reader.
    if (self->exchange_->closed()) return;
    work->prepared =
        prepare_generation(self->kind_, std::move(work->body), self->context_, *work->budget);
  };
  const auto done = [self = shared_from_this(), work](const std::exception_ptr& failure) {
    if (self->state_ != State::kPreparing) return;
    self->budget_ = std::move(work->budget);
    if (failure) return self->break_off(failure);
    self->guarded([&] {
      self->set_deadline(work->prepared.request.timeout_s);
      self->go_on_preparing(std::move(work->prepared));
    });
  };
  run_on_worker(context_, context_.workers, prepare, done, record_.client);
}

void Generation::go_on_preparing(PreparedGeneration prepared) {
  if (!prepared.needs_compiling) return this->prepared(std::move(prepared));
  compile(std::make_shared<PreparedGeneration>(std::move(prepared)), Pace::kQuick);
}

void Generation::compile(std::shared_ptr<PreparedGeneration> work, Pace pace) {
  const auto run = [self = shared_from_this(), work, pace] {
    if (self->exchange_->closed() || self->given_up_) return;
    if (pace == Pace::kQuick) {
      compile_quickly(*work, self->context_);
    } else {
      compile_constraint(*work, self->context_);
    }
  };
  const auto done = [self = shared_from_this(), work, pace](const std::exception_ptr& failure) {
    if (self->state_ != State::kPreparing) return;
    if (failure) return self->break_off(failure);
    self->guarded([&] {
      if (pace == Pace::kQuick && work->needs_compiling) return self->compile(work, Pace::kSlow);
      self->prepared(std::move(*work));
    });
  };
  WorkerPool& threads = pace == Pace::kQuick ? context_.compilers : context_.slow_compilers;
  run_on_worker(context_, threads, run, done, record_.client);
}

void Generation::prepared(PreparedGeneration prepared) {
  prepared_ = std::move(prepared);
  const GenerationRequest& request = prepared_.request;
  if (!request.request_id.empty()) record_.request_id = request.request_id;
  if (request.resumable) {
    exchange_ = context_.streams.adopt(exchange_, record_.owner, record_.request_id);
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
  running_bytes_ = prepared_.running_bytes();
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
  waiting.adapter = prepared_.request.adapter;
  ticket_ = context_.admission.enqueue(std::move(waiting), prepared_.request.priority);
  state_ = State::kQueued;
  context_.admission.pump();
}

void Generation::set_deadline(std::optional<double> timeout_s) {
  const auto set = [this](Clock::time_point due, void (Generation::*passed)()) {
    const std::function<void()> task = [weak = weak_from_this(), passed] {
      if (const auto self = weak.lock()) (self.get()->*passed)();
    };
    return context_.timers.at(due, [post = context_.post, task] { post(task); });
  };
  const auto after = [this](double seconds) {
    return arrived_ + std::chrono::duration_cast<Clock::duration>(
                          std::chrono::duration<double>(std::min(seconds, 1e8)));
  };
  if (timeout_s) {
    deadline_ = set(after(*timeout_s), &Generation::deadline_passed);
  }
  if (context_.config.max_queue_time_s > 0) {
    queue_limit_ = set(after(context_.config.max_queue_time_s), &Generation::queue_time_passed);
  }
}

void Generation::run() {
  state_ = State::kReading;
  has_place_ = true;
  if (queue_limit_) context_.timers.cancel(*std::exchange(queue_limit_, std::nullopt));
  guarded([this] {
    const std::string& adapter = prepared_.request.adapter;
    if (adapter.empty()) return start({});
    if (std::optional<HeldLora> weights = find_adapter(adapter, context_)) {
      start(std::move(*weights));
    } else {
      read_weights();
    }
  });
}

void Generation::read_weights() {
  const auto weights = std::make_shared<HeldLora>();
  const auto read = [self = shared_from_this(), weights, name = prepared_.request.adapter] {
    if (self->exchange_->closed() || self->given_up_) return;
    *weights = read_adapter(name, self->context_);
  };
  const auto done = [self = shared_from_this(), weights](const std::exception_ptr& failure) {
    // client_gone() ends those that are closed.
    if (self->state_ != State::kReading || self->exchange_->closed()) return;
    if (failure) return self->break_off(failure);
    self->guarded([&] { self->start(std::move(*weights)); });
    self->context_.admission.pump();  // others waited for the adapter
  };
  run_on_worker(context_, context_.adapter_readers, read, done, record_.client);
}

void Generation::start(HeldLora weights) {
  state_ = State::kRunning;
  if (submit_prompts(std::move(weights))) begin_answer();
}

bool Generation::submit_prompts(HeldLora weights) {
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
  options.lora = prepared_.request.adapter;
  options.lora_weights = std::move(weights);
  try {
    for (size_t i = 0; i < prepared_.prompts.size(); ++i) {
      auto on_ready = [ready = context_.ready, weak = weak_from_this(), i] { ready->add(weak, i); };
      sources_.push_back(context_.engine.submit(std::move(prepared_.prompts[i]),
                                                prepared_.request.sampling, options,
                                                std::move(on_ready)));
      ++num_running_;
    }
    if (!options.lora.empty()) context_.admission.adapter_is_read(options.lora);
    return true;
  } catch (const EngineFailure& failure) {
    context_.engine_failed(failure.what());
    refuse(server_error(fmt::format("The engine has failed: {}", failure.what())));
  } catch (const Error& error) {
    refuse(refusal_of(prepared_.request, error));
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

// A slow reader gives its place in the engine back once the engine has done its work.
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
                              Clock::now(), prepared_.request.adapter);
}

void Generation::break_off(const std::exception_ptr& failure) {
  if (state_ == State::kEnded) return;
  if (state_ == State::kDraining) return drop_sources();
  try {
    const ApiError error = api_error_of(failure);
    if (state_ == State::kRunning) {
      fail(error);
    } else {
      refuse(error);
    }
  } catch (const std::exception&) {
    // There is not even memory to report it: the exchange ends by itself when this releases it.
  }
  give_up();
}

// Does not wait until the engine has released them.
void Generation::drop_sources() {
  for (auto& source : sources_) source.reset();
  num_running_ = 0;
  end();
}

void Generation::deadline_passed() {
  deadline_.reset();
  guarded([this] {
    if (state_ == State::kPreparing || state_ == State::kQueued || state_ == State::kReading) {
      record_.reject_reason = "queue_timeout";
      throw rate_limited("The request's timeout passed while it waited for its turn.",
                         context_.admission.retry_after_s());
    }
    if (state_ == State::kRunning) {
      expired_ = true;
      cancel_sources();
    }
  });
}

void Generation::queue_time_passed() {
  queue_limit_.reset();
  guarded([this] {
    if (state_ != State::kPreparing && state_ != State::kQueued) return;
    record_.reject_reason = "queue_timeout";
    throw rate_limited(fmt::format("The request waited for {} s without getting its turn "
                                   "(--max-queue-time); try again later.",
                                   context_.config.max_queue_time_s),
                       context_.admission.retry_after_s());
  });
}

void Generation::client_gone() {
  if (state_ == State::kWriting || state_ == State::kDraining || state_ == State::kEnded) return;
  guarded([this] {
    record_.client_disconnected = true;
    if (record_.status == 0) record_.status = 499;
    record_.error = "The client closed the connection.";
    give_up();
  });
}

void Generation::cut_short() {
  guarded([this] {
    if (state_ == State::kRunning) {
      cancel_sources();
    } else if (state_ < State::kRunning) {
      throw service_unavailable("The server is shutting down.", 1);
    }
  });
}

void Generation::give_up() {
  given_up_ = true;
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
  fetch_all();
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
  facts.stage = state_ < State::kRunning ? RequestStage::kQueued : RequestStage::kRunning;
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
  try {
    context_.request_log.add(record_);
    exchange_->on_end([&context = context_, record = record_, budget = budget_,
                       arrived = arrived_](bool delivered) mutable {
      record.total_s = seconds_between(arrived, Clock::now());
      if (!delivered) {
        mark_undelivered(record);
        context.request_log.add(record);  // hides the first
      }
      report(context, record);
    });
  } catch (const std::bad_alloc&) {
    return;  // it ends without a line in the log
  }
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
