#pragma once
// The API: which handler answers which path, who may call it, and the generations under way.
//
//   quire::server::Service service(config, model, tokenizer, chat_template, engine, log, post);
//   http::Server server(http_config, [&](auto exchange) { service.handle(exchange); });
//
// Thread safety: handle() and the other methods on the I/O thread (through `post`), of which there
// is one.
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "http/exchange.h"
#include "http/server.h"
#include "parsers/parser_formats.h"
#include "server/admission.h"
#include "server/api/model_info.h"
#include "server/api/openapi.h"
#include "server/api_keys.h"
#include "server/engine_port.h"
#include "server/generation.h"
#include "server/observe/access_log.h"
#include "server/observe/metrics.h"
#include "server/observe/request_log.h"
#include "server/service_context.h"

namespace quire::server {

struct ServiceConfig {
  AdmissionConfig admission{};
  double max_queue_time_s = 0;  // 0: no limit
  std::vector<std::string> api_keys{};
  bool share_cache_between_keys = false;
  std::vector<std::string> allowed_origins{};  // CORS; "*": any; empty: off
  OutputFormats formats{};
  MetricsConfig metrics{};
  bool access_log = true;  // a line for each request
  int num_workers = 2;     // threads that parse, render and tokenise
};

class Service {
 public:
  using Post = std::function<void(std::function<void()>)>;

  // `tokenizer` and `chat_template` may be null. What is passed by pointer or reference must
  // outlive it. `post` runs a task on the I/O thread. `http_stats` and `engine_failed` are called
  // on the I/O thread.
  Service(ServiceConfig config, ModelInfo model, const Tokenizer* tokenizer,
          const ChatTemplate* chat_template, EnginePort& engine, AccessLog& log, Post post,
          std::function<http::Stats()> http_stats,
          std::function<void(const std::string&)> engine_failed);
  // The I/O thread must have ended, or run nothing of it any more.
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  void handle(std::shared_ptr<http::Exchange> exchange);

  // New generations are refused and /ready says no; those accepted go on.
  void begin_shutdown();
  // Generations that hold anything: waiting, running, or being cancelled.
  size_t num_generations() const { return generations_.size(); }
  // Ends them with what they have.
  void cut_short();

 private:
  struct Route;
  using Handler = void (Service::*)(const std::shared_ptr<http::Exchange>&, RequestRecord);

  static const std::vector<Route>& routes();
  static std::vector<std::string> documented_paths();
  void dispatch(const std::shared_ptr<http::Exchange>& exchange, RequestRecord record);
  // Whose request it is; throws ApiError 401.
  void authenticate(const http::Request& request, RequestRecord& record) const;
  bool answer_preflight(const std::shared_ptr<http::Exchange>& exchange) const;

  void chat_completions(const std::shared_ptr<http::Exchange>& exchange, RequestRecord record);
  void completions(const std::shared_ptr<http::Exchange>& exchange, RequestRecord record);
  void tokenize(const std::shared_ptr<http::Exchange>& exchange, RequestRecord record);
  void detokenize(const std::shared_ptr<http::Exchange>& exchange, RequestRecord record);
  void models(const std::shared_ptr<http::Exchange>& exchange, RequestRecord record);
  void model(const std::shared_ptr<http::Exchange>& exchange, RequestRecord record);
  void health(const std::shared_ptr<http::Exchange>& exchange, RequestRecord record);
  void ready(const std::shared_ptr<http::Exchange>& exchange, RequestRecord record);
  void version(const std::shared_ptr<http::Exchange>& exchange, RequestRecord record);
  void metrics(const std::shared_ptr<http::Exchange>& exchange, RequestRecord record);
  void openapi(const std::shared_ptr<http::Exchange>& exchange, RequestRecord record);
  void explain(const std::shared_ptr<http::Exchange>& exchange, RequestRecord record);
  void page(const std::shared_ptr<http::Exchange>& exchange, RequestRecord record);

  void generate(const std::shared_ptr<http::Exchange>& exchange, RequestKind kind,
                RequestRecord record);
  // Runs `work`, which gives a body or throws ApiError, on a worker, and answers with it.
  void answer_from_worker(const std::shared_ptr<http::Exchange>& exchange, RequestRecord record,
                          std::function<std::string(const std::string& body)> work);
  void answer(http::Exchange& exchange, RequestRecord record, http::Response response);
  void refuse(http::Exchange& exchange, RequestRecord record, const ApiError& error);
  void add_cors(const http::Request& request, http::Headers& headers) const;
  void fetch_ready();
  ServerStats server_stats() const;

  ServiceConfig config_;
  ModelInfo model_;
  ApiKeys keys_;
  ApiDescription api_;
  EnginePort& engine_;
  AccessLog& log_;
  std::function<http::Stats()> http_stats_;
  ServerMetrics metrics_;
  RequestLog request_log_;
  Admission admission_;
  std::unordered_map<const Generation*, std::shared_ptr<Generation>> generations_;
  std::vector<ReadyList::Entry> ready_entries_;
  bool shutting_down_ = false;
  bool engine_failed_ = false;
  std::unique_ptr<ServiceContext> context_;
  TimerQueue timers_;
  WorkerPool workers_;  // last: its tasks use the rest
};

}  // namespace quire::server
