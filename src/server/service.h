#pragma once
// The API: which handler answers which path, and who may call it.
//
//   quire::server::Service service(config, model, {.engine = engine, .log = log, ...});
//   http::Server server(http_config, [&](auto exchange) { service.handle(exchange); });
//
// Thread safety: handle() and the other methods on the one I/O thread (through `post`).
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/memory_account.h"
#include "base/timer_queue.h"
#include "http/exchange.h"
#include "http/server.h"
#include "server/admission.h"
#include "server/answer/body_source.h"
#include "server/api/model_info.h"
#include "server/api/openapi.h"
#include "server/api_keys.h"
#include "server/cors.h"
#include "server/doors.h"
#include "server/engine_port.h"
#include "server/generations.h"
#include "server/key_limits.h"
#include "server/observe/access_log.h"
#include "server/observe/metrics.h"
#include "server/observe/request_log.h"
#include "server/observe/trace_exporter.h"
#include "server/request_budget.h"
#include "server/resumable_streams.h"
#include "server/service_config.h"
#include "server/service_context.h"
#include "server/worker_pool.h"

namespace quire::server {

// Objects that the service uses and does not own. References and pointers must outlive it.
struct ServiceEnvironment {
  EnginePort& engine;
  AccessLog& log;
  const Tokenizer* tokenizer = nullptr;         // null where the model has none
  const ChatTemplate* chat_template = nullptr;  // null where the model has none
  TraceExporter* traces = nullptr;              // null: none are exported
  // Runs a task on the I/O thread, after this call has returned. From any thread.
  std::function<void(std::function<void()>)> post{};
  // Called on the I/O thread. engine_failed: when the engine has failed for good, with its message.
  std::function<http::Stats()> http_stats{};
  std::function<void(const std::string&)> engine_failed{};
};

class Service {
 public:
  Service(ServiceConfig config, ModelInfo model, ServiceEnvironment environment);
  // The I/O thread must have ended, or must run nothing of the service any more.
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  // Every path, as OpenAPI writes it; "/" for the files of the page.
  static std::vector<std::string> documented_paths();

  void handle(std::shared_ptr<http::Exchange> exchange);

  // The account of all requests; from any thread.
  std::shared_ptr<MemoryAccount> memory() const { return memory_; }
  // Whether a request with this head needs its body. If not, handle() refuses it without.
  bool wants_body(const http::Request& head);
  // For requests from now on. There must be keys if there were any at the start, and none if not.
  void set_keys(ApiKeys keys) { keys_ = std::move(keys); }
  void set_key_limits(KeyLimitTable limits) { key_limits_.set(std::move(limits)); }

  // New generations are refused and /ready says no; those accepted go on.
  void begin_shutdown();

  // Generations that hold anything: waiting, running, or being cancelled.
  size_t num_generations() const { return generations_.size(); }
  // Ends all generations with what they have.
  void cut_short() { generations_.cut_short(); }

 private:
  struct Route;
  using Handler = void (Service::*)(const std::shared_ptr<http::Exchange>&, RequestRecord);

  static const std::vector<Route>& routes();
  // Finds the handler and calls it. Fills in the request's owner.
  void dispatch(const std::shared_ptr<http::Exchange>& exchange, RequestRecord& record);
  // The route of a request, null for a file of the page. Throws ApiError for faults of the head: a
  // Host or Origin that may not use this server, an unknown path, a missing key.
  const Route* route_of(const http::Request& request, RequestRecord& record) const;
  // Fills in the request's owner; throws ApiError 401.
  void authenticate(const http::Request& request, RequestRecord& record) const;

  void chat_completions(const std::shared_ptr<http::Exchange>& exchange, RequestRecord record);
  void completions(const std::shared_ptr<http::Exchange>& exchange, RequestRecord record);
  void tokenize(const std::shared_ptr<http::Exchange>& exchange, RequestRecord record);
  void detokenize(const std::shared_ptr<http::Exchange>& exchange, RequestRecord record);
  void load_lora_adapter(const std::shared_ptr<http::Exchange>& exchange, RequestRecord record);
  void unload_lora_adapter(const std::shared_ptr<http::Exchange>& exchange, RequestRecord record);
  void models(const std::shared_ptr<http::Exchange>& exchange, RequestRecord record);
  void model(const std::shared_ptr<http::Exchange>& exchange, RequestRecord record);
  void health(const std::shared_ptr<http::Exchange>& exchange, RequestRecord record);
  void ready(const std::shared_ptr<http::Exchange>& exchange, RequestRecord record);
  void version(const std::shared_ptr<http::Exchange>& exchange, RequestRecord record);
  void metrics(const std::shared_ptr<http::Exchange>& exchange, RequestRecord record);
  void openapi(const std::shared_ptr<http::Exchange>& exchange, RequestRecord record);
  void explain(const std::shared_ptr<http::Exchange>& exchange, RequestRecord record);
  // The facts of a request of this owner, running or over.
  std::optional<RequestRecord> facts_of(std::string_view request_id, std::string_view owner) const;
  void resume(const std::shared_ptr<http::Exchange>& exchange, RequestRecord record);
  void page(const std::shared_ptr<http::Exchange>& exchange, RequestRecord record);

  void generate(const std::shared_ptr<http::Exchange>& exchange, RequestKind kind,
                RequestRecord record);
  // A body; the rest of a large one is made as the client reads it.
  struct Body {
    std::string first_piece{};
    std::shared_ptr<BodySource> rest{};  // null: nothing follows
    std::string content_type{};          // empty: JSON's
  };
  using Work = std::function<Body(std::string request_body, RequestBudget& budget)>;
  // Runs `work`, which may throw ApiError, on a thread of `workers` (null: workers_), and answers
  // with its result.
  void answer_from_worker(const std::shared_ptr<http::Exchange>& exchange, RequestRecord record,
                          Work work, WorkerPool* workers = nullptr);
  // Completes the head. Once the answer has ended, the request is logged and counted, and `budget`,
  // which may be null, is given back.
  void prepare_answer(http::Exchange& exchange, RequestRecord record, http::Response& response,
                      std::shared_ptr<RequestBudget> budget);
  void answer(http::Exchange& exchange, RequestRecord record, http::Response response);
  void refuse(http::Exchange& exchange, RequestRecord record, const ApiError& error);
  // Counts a request that was answered, and logs it.
  void count(const RequestRecord& record);
  // Gives the allocator's free memory back to the system. From any thread.
  void free_memory_soon();
  void fetch_ready();
  // The engine has failed: health checks fail from now on.
  void engine_failed(const std::string& message);
  // Includes the requests that wait in front of the engine for their adapters.
  EngineStats engine_stats();
  ServerStats server_stats() const;

  ServiceConfig config_;
  ModelInfo model_;
  ServiceEnvironment environment_;
  ApiKeys keys_;
  KeyLimits key_limits_;
  Cors cors_;
  Doors doors_;
  ApiDescription api_;
  ServerMetrics metrics_;
  RequestLog request_log_;
  std::shared_ptr<MemoryAccount> memory_;  // of all requests
  std::shared_ptr<ResumableStreams> streams_;
  Admission admission_;
  ServiceContext context_;  // refers to the others
  Generations generations_;
  std::atomic<bool> will_free_memory_ = false;
  bool shutting_down_ = false;
  bool engine_failed_ = false;
  TimerQueue timers_;
  // These come last because their tasks use the members above.
  WorkerPool workers_;
  WorkerPool compilers_;
  WorkerPool slow_compilers_;
  WorkerPool adapter_readers_;  // for requests
  WorkerPool adapter_loaders_;  // for those who load adapters: however many, requests pass them
};

}  // namespace quire::server
