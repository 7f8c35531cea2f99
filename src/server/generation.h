#pragma once
// One call of /v1/chat/completions or /v1/completions, from its first byte to its last.
//
//   arrive -> prepare (worker thread) -> wait for its turn -> read its adapter -> run -> answered
//
// It may end early from any state: refused, its client gone, its deadline passed, the engine
// failed, no memory left. In every case it ends once: it gives back its place in the queue or the
// engine and cancels its sequences, which needs no memory. Its record is logged and counted once it
// is known whether the client got the answer.
//
// Thread safety: the I/O thread, except that prepare works on a worker with its own data.
#include <atomic>
#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "http/exchange.h"
#include "server/answer/response_format.h"
#include "server/prepare_generation.h"
#include "server/request_budget.h"
#include "server/service_context.h"

namespace quire::server {

class Generation : public std::enable_shared_from_this<Generation> {
 public:
  using Clock = std::chrono::steady_clock;

  // `record` has what is known of the request so far; `headers` go with every answer. `on_end` is
  // called once, when the generation holds nothing any more.
  Generation(const ServiceContext& context, std::shared_ptr<http::Exchange> exchange,
             RequestKind kind, RequestRecord record, http::Headers headers,
             std::function<void(Generation&)> on_end);

  // None of these throws.
  // Accepts the request, or refuses it.
  void begin();
  // Fetches the engine's outputs for one prompt, or for all, and sends them.
  void fetch(size_t prompt_index);
  void fetch_all();
  // Ends it with what it has: the server stops.
  void cut_short();

  const RequestRecord& record() const { return record_; }
  // The facts so far; nothing once its record is written.
  std::optional<RequestRecord> facts() const;

 private:
  enum class State {  // in this order
    kArriving,
    kPreparing,
    kQueued,
    kReading,  // it had its turn; its adapter is being read
    kRunning,
    kWriting,   // a worker writes the answer
    kDraining,  // answered or given up; the engine has yet to let go of its sequences
    kEnded,
  };

  void watch_client();
  static double seconds_between(Clock::time_point from, Clock::time_point to) {
    return std::chrono::duration<double>(to - from).count();
  }
  // Runs `step`; an exception ends this generation and nothing else.
  template <typename Step>
  void guarded(Step step) {
    try {
      step();
    } catch (...) {
      break_off(std::current_exception());
    }
  }
  // Ends it with an error, if the client can still be told.
  void break_off(const std::exception_ptr& failure);

  void prepare();
  // Prepares the answer's constraint. That may take seconds, so other threads do it.
  void go_on_preparing(PreparedGeneration prepared);
  // What takes too long for kQuick goes on with kSlow.
  enum class Pace { kQuick, kSlow };
  void compile(std::shared_ptr<PreparedGeneration> work, Pace pace);
  void prepared(PreparedGeneration prepared);
  void enqueue();
  // Sets the deadline, counted from arrival, so that it includes every wait.
  void set_deadline(std::optional<double> timeout_s);
  // Its turn has come.
  void run();
  // Reads the adapter's weights. That may take seconds, too.
  void read_weights();
  void start(HeldLora weights);
  bool submit_prompts(HeldLora weights);
  void begin_answer();
  http::Response response_head() const;
  void leave_engine_if_done();
  void leave_engine();
  void drop_sources();
  void take(size_t prompt_index, RequestOutput output);
  void charge(const RequestOutput& output);
  void measure(size_t prompt_index, const RequestOutput& output);
  void measure_engine(size_t prompt_index, const RequestMetrics& metrics);
  void mark_deadline(RequestOutput& output) const;
  void answer_from_worker();
  // Answers with the body's first piece; formatter_ has the rest.
  void answer(std::string first_piece);

  void deadline_passed();
  void queue_time_passed();
  void client_gone();
  // Leaves the queue or cancels the sequences; the answer was given, or will not be.
  void give_up();
  void cancel_sources();
  void refuse(const ApiError& error);
  void fail(const ApiError& error);
  void source_ended();
  void set_times(RequestRecord& record) const;
  void write_record();
  void end();

  const ServiceContext& context_;
  std::shared_ptr<http::Exchange> exchange_;
  RequestKind kind_;
  RequestRecord record_;
  http::Headers headers_;
  std::function<void(Generation&)> on_end_;
  State state_ = State::kArriving;
  Clock::time_point arrived_ = Clock::now();
  Clock::time_point submitted_{};
  std::vector<std::optional<Clock::time_point>> last_outputs_;  // of each prompt
  std::optional<Clock::time_point> last_output_;                // of any
  std::vector<RequestMetrics> engine_metrics_;                  // the last of each prompt
  PreparedGeneration prepared_;
  int64_t running_bytes_ = 0;  // of the prompts and their log-probabilities
  // Given back once the answer has ended. A worker has it while it prepares the request.
  std::shared_ptr<RequestBudget> budget_;
  std::shared_ptr<ResponseFormatter> formatter_;
  std::vector<std::unique_ptr<OutputSource>> sources_;  // one a prompt; null once it has ended
  size_t num_running_ = 0;                              // of sources_
  Admission::Ticket ticket_ = 0;
  std::optional<TimerQueue::Id> deadline_;
  std::optional<TimerQueue::Id> queue_limit_;
  bool has_place_ = false;  // it had its turn, and counts among those in the engine
  bool expired_ = false;    // its deadline passed
  bool cut_ = false;        // sequences were cancelled because nothing more is needed
  bool paused_ = false;     // the client reads more slowly than the engine writes
  bool recorded_ = false;
  std::atomic<bool> given_up_ = false;  // threads that prepare it look: no work without a reader
};

}  // namespace quire::server
