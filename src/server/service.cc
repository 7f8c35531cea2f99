#include "server/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <new>
#include <random>
#include <thread>
#include <utility>

#include "quire/version.h"
#include "server/run_on_worker.h"
#include "server/send_body.h"
#include "server/web_page.h"
#include "web/assets.h"

namespace quire::server {
namespace {

constexpr std::string_view kModels = "/v1/models/";
constexpr std::string_view kRequests = "/v1/requests/";
constexpr std::string_view kEvents = "/events";  // behind a request's id
constexpr size_t kMaxRequestId = 128;
// The engine reads one adapter at a time; the second finds what was read meanwhile.
constexpr int kAdapterReaders = 2;

// A request's id, where `id` may be the one that its answer's body has.
std::string_view without_prefix_of_answer(std::string_view id) {
  for (const std::string_view prefix : {"chatcmpl-", "cmpl-"}) {
    if (id.starts_with(prefix)) return id.substr(prefix.size());
  }
  return id;
}

std::string random_id() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", device(), device(), device(), device());
}

// The client's own id, where it may stand in a header and in a log.
bool usable_id(std::string_view id) {
  return !id.empty() && id.size() <= kMaxRequestId && std::ranges::all_of(id, [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '_' || c == '.' || c == ':';
  });
}

http::Response json_response(std::string body) {
  http::Response response;
  response.body = std::move(body);
  return response;
}

// `post` that waits for the memory that it takes.
std::function<void(const std::function<void()>&)> patient(
    std::function<void(std::function<void()>)> post) {
  return [post = std::move(post)](const std::function<void()>& task) {
    constexpr std::chrono::milliseconds kWait{10};
    while (true) {
      try {
        return post(task);
      } catch (const std::bad_alloc&) {
        std::this_thread::sleep_for(kWait);
      }
    }
  };
}

double seconds_since(std::chrono::system_clock::time_point then) {
  return std::chrono::duration<double>(std::chrono::system_clock::now() - then).count();
}

}  // namespace

struct Service::Route {
  std::string_view method;
  std::string_view path;  // one that ends in "/" stands for all below it
  Handler handler;
  std::string_view suffix{};      // with which the part below it ends
  std::string_view documented{};  // where not the path itself
  bool needs_key = true;
  bool is_for_adapters = false;  // there only where clients may load them
  bool quiet = false;            // polled all the time: no line in the log where it went well

  bool computes() const { return method == "POST"; }
  bool matches(std::string_view requested) const {
    return path.ends_with('/') ? requested.size() > path.size() + suffix.size() &&
                                     requested.starts_with(path) && requested.ends_with(suffix)
                               : requested == path;
  }
};

const std::vector<Service::Route>& Service::routes() {
  static const std::vector<Route> table = {
      {.method = "POST", .path = "/v1/chat/completions", .handler = &Service::chat_completions},
      {.method = "POST", .path = "/v1/completions", .handler = &Service::completions},
      {.method = "GET", .path = "/v1/models", .handler = &Service::models},
      {.method = "GET",
       .path = kModels,
       .handler = &Service::model,
       .documented = "/v1/models/{model}"},
      {.method = "GET",
       .path = kRequests,
       .handler = &Service::resume,
       .suffix = kEvents,
       .documented = "/v1/requests/{request_id}/events"},
      {.method = "GET",
       .path = kRequests,
       .handler = &Service::explain,
       .documented = "/v1/requests/{request_id}"},
      {.method = "POST", .path = "/tokenize", .handler = &Service::tokenize},
      {.method = "POST", .path = "/detokenize", .handler = &Service::detokenize},
      {.method = "POST",
       .path = "/v1/load_lora_adapter",
       .handler = &Service::load_lora_adapter,
       .is_for_adapters = true},
      {.method = "POST",
       .path = "/v1/unload_lora_adapter",
       .handler = &Service::unload_lora_adapter,
       .is_for_adapters = true},
      {.method = "GET",
       .path = "/health",
       .handler = &Service::health,
       .needs_key = false,
       .quiet = true},
      {.method = "GET",
       .path = "/ready",
       .handler = &Service::ready,
       .needs_key = false,
       .quiet = true},
      {.method = "GET", .path = "/version", .handler = &Service::version, .needs_key = false},
      {.method = "GET", .path = "/metrics", .handler = &Service::metrics, .quiet = true},
      {.method = "GET", .path = "/openapi.json", .handler = &Service::openapi},
  };
  return table;
}

std::vector<std::string> Service::documented_paths() {
  std::vector<std::string> paths = {"/"};
  for (const Route& route : routes()) {
    paths.emplace_back(route.documented.empty() ? route.path : route.documented);
  }
  return paths;
}

Service::Service(ServiceConfig config, ModelInfo model, ServiceEnvironment environment)
    : config_(std::move(config)),
      model_(std::move(model)),
      environment_(std::move(environment)),
      keys_(config_.api_keys),
      key_limits_(config_.key_limits),
      cors_(config_.allowed_origins),
      doors_(config_.doors, cors_),
      api_(model_, keys_.required()),
      metrics_([this] {
        MetricsConfig metrics = config_.metrics;
        metrics.paths = documented_paths();
        return metrics;
      }()),
      request_log_(config_.request_log),
      memory_(std::make_shared<MemoryAccount>(config_.max_server_memory)),
      streams_(std::make_shared<ResumableStreams>(config_.resumable, memory_, timers_,
                                                  environment_.post)),
      admission_(config_.admission, environment_.engine),
      context_{.config = config_,
               .model = model_,
               .api = api_,
               .tokenizer = environment_.tokenizer,
               .chat_template = environment_.chat_template,
               .engine = environment_.engine,
               .admission = admission_,
               .key_limits = key_limits_,
               .metrics = metrics_,
               .log = environment_.log,
               .request_log = request_log_,
               .traces = environment_.traces,
               .streams = *streams_,
               .memory = memory_,
               .timers = timers_,
               .workers = workers_,
               .compilers = compilers_,
               .slow_compilers = slow_compilers_,
               .adapter_readers = adapter_readers_,
               .ready = std::make_shared<ReadyList>(
                   [post = patient(environment_.post),
                    fetch = std::function<void()>([this] { fetch_ready(); })] { post(fetch); }),
               .post = patient(environment_.post),
               .engine_failed = [this](const std::string& message) { engine_failed(message); }},
      generations_(context_),
      workers_(config_.num_workers),
      compilers_(config_.num_compilers),
      slow_compilers_(config_.num_compilers),
      adapter_readers_(model_.adapters == nullptr ? 0 : kAdapterReaders),
      adapter_loaders_(model_.loads_adapters ? 1 : 0) {
  memory_->on_much_ended([this] { free_memory_soon(); });
}

Service::~Service() {
  memory_->on_much_ended({});  // charges that end from here on
}

// Together for those that end at about the same time, and once their memory is free.
void Service::free_memory_soon() {
  constexpr std::chrono::milliseconds kWait{100};
  if (will_free_memory_.exchange(true)) return;
  try {
    timers_.after(kWait, [this, post = context_.post] {
      post([this] {
        will_free_memory_ = false;
        workers_.run(release_free_memory);
      });
    });
  } catch (const std::bad_alloc&) {
    will_free_memory_ = false;  // the next that ends tries again
  }
}

void Service::handle(std::shared_ptr<http::Exchange> exchange) {
  const http::Request& request = exchange->request();
  RequestRecord record;
  const auto given = request.header("X-Request-Id");
  record.request_id = given && usable_id(*given) ? std::string(*given) : random_id();
  record.arrived = std::chrono::system_clock::now();
  record.method = request.method;
  record.path = request.path;
  record.client = request.remote;
  try {
    dispatch(exchange, record);
  } catch (...) {
    refuse(*exchange, std::move(record), api_error_of(std::current_exception()));
  }
}

bool Service::wants_body(const http::Request& head) {
  try {
    RequestRecord record;
    const Route* route = route_of(head, record);
    if (route == nullptr) return false;
    if (route->computes()) key_limits_.check(record.owner, /*generates=*/false);
    return true;
  } catch (const ApiError&) {
    return false;  // handle() says why
  }
}

void Service::dispatch(const std::shared_ptr<http::Exchange>& exchange, RequestRecord& record) {
  const http::Request& request = exchange->request();
  doors_.check_host(request);
  if (auto preflight = cors_.preflight(request)) {
    exchange->respond(std::move(*preflight));
    return;
  }
  if (const Route* route = route_of(request, record)) {
    (this->*route->handler)(exchange, record);
  } else {
    page(exchange, record);
  }
}

const Service::Route* Service::route_of(const http::Request& request, RequestRecord& record) const {
  doors_.check_host(request);
  const std::string_view method =
      request.method == "HEAD" ? "GET" : std::string_view(request.method);
  std::string_view path = request.path;
  if (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  std::string allowed;
  for (const Route& route : routes()) {
    if (!route.matches(path) || (route.is_for_adapters && !model_.loads_adapters)) continue;
    allowed = route.method == "GET" ? "GET, HEAD" : route.method;
    if (route.method != method) continue;
    if (route.needs_key) authenticate(request, record);
    if (route.computes()) doors_.check_computing(request);
    return &route;
  }
  if (allowed.empty() && web::find_asset(request.path) != nullptr) {
    if (method == "GET") return nullptr;
    allowed = "GET, HEAD";
  }
  if (!allowed.empty()) {
    throw method_not_allowed(
        fmt::format("{} does not take {} requests.", request.path, request.method),
        std::move(allowed));
  }
  throw not_found(fmt::format("There is nothing at {}; see /openapi.json.", request.path));
}

void Service::authenticate(const http::Request& request, RequestRecord& record) const {
  const auto owner = keys_.owner_of(request.header("Authorization"));
  if (!owner) {
    throw authentication_error(
        "This server needs an API key; expected the header \"Authorization: Bearer KEY\" with a "
        "key that it knows.");
  }
  record.owner = *owner;
  if (keys_.required()) record.client = "key-" + owner->substr(0, 8);
}

void Service::chat_completions(const std::shared_ptr<http::Exchange>& exchange,
                               RequestRecord record) {
  generate(exchange, RequestKind::kChat, std::move(record));
}

void Service::completions(const std::shared_ptr<http::Exchange>& exchange, RequestRecord record) {
  generate(exchange, RequestKind::kCompletion, std::move(record));
}

void Service::generate(const std::shared_ptr<http::Exchange>& exchange, RequestKind kind,
                       RequestRecord record) {
  http::Headers headers;
  cors_.add_headers(exchange->request(), headers);
  if (environment_.traces != nullptr) record.trace = trace_context_of(exchange->request());
  generations_.start(exchange, kind, std::move(record), std::move(headers));
}

void Service::models(const std::shared_ptr<http::Exchange>& exchange, RequestRecord record) {
  answer(*exchange, std::move(record), json_response(models_body(model_)));
}

void Service::model(const std::shared_ptr<http::Exchange>& exchange, RequestRecord record) {
  std::string body =
      model_body(model_, std::string_view(exchange->request().path).substr(kModels.size()));
  answer(*exchange, std::move(record), json_response(std::move(body)));
}

// Whether the process is worth keeping: an engine that has failed does not come back.
void Service::health(const std::shared_ptr<http::Exchange>& exchange, RequestRecord record) {
  if (engine_failed_) throw service_unavailable("The engine has failed.");
  answer(*exchange, std::move(record), json_response(R"({"status":"ok"})"));
}

// Whether new requests are taken.
void Service::ready(const std::shared_ptr<http::Exchange>& exchange, RequestRecord record) {
  if (engine_failed_) throw service_unavailable("The engine has failed.");
  if (shutting_down_) throw service_unavailable("The server is shutting down.");
  answer(*exchange, std::move(record), json_response(R"({"status":"ready"})"));
}

void Service::version(const std::shared_ptr<http::Exchange>& exchange, RequestRecord record) {
  answer(*exchange, std::move(record),
         json_response(fmt::format(R"({{"version":"{}"}})", quire::version())));
}

void Service::metrics(const std::shared_ptr<http::Exchange>& exchange, RequestRecord record) {
  metrics_.update(engine_stats(), server_stats());
  http::Response response;
  response.content_type = ServerMetrics::kContentType;
  response.body = metrics_.render();
  answer(*exchange, std::move(record), std::move(response));
}

void Service::openapi(const std::shared_ptr<http::Exchange>& exchange, RequestRecord record) {
  answer(*exchange, std::move(record), json_response(api_.document()));
}

void Service::explain(const std::shared_ptr<http::Exchange>& exchange, RequestRecord record) {
  const std::string_view id = std::string_view(exchange->request().path).substr(kRequests.size());
  auto found = facts_of(id, record.owner);
  if (!found) found = facts_of(without_prefix_of_answer(id), record.owner);
  if (!found) {
    throw not_found("There is no record of that request: it never came, or is too old.");
  }
  answer(*exchange, std::move(record), json_response(explain_request_json(*found)));
}

std::optional<RequestRecord> Service::facts_of(std::string_view request_id,
                                               std::string_view owner) const {
  auto live = generations_.find(request_id, owner);
  return live ? live : request_log_.find(request_id, owner);
}

void Service::resume(const std::shared_ptr<http::Exchange>& exchange, RequestRecord record) {
  const http::Request& request = exchange->request();
  if (request.method == "HEAD") {  // it would take the stream from its client, and get nothing
    throw method_not_allowed("Only GET goes on with a stream.", "GET");
  }
  std::string_view id = std::string_view(request.path).substr(kRequests.size());
  if (id.ends_with('/')) id.remove_suffix(1);
  id.remove_suffix(kEvents.size());
  if (!streams_->contains(record.owner, id)) id = without_prefix_of_answer(id);
  http::Response head;
  head.content_type = kEventStream;
  head.headers = {{"X-Request-Id", record.request_id}, {"Cache-Control", "no-cache"}};
  cors_.add_headers(request, head.headers);
  streams_->resume(exchange, std::move(head), record.owner, id,
                   request.header("Last-Event-ID").value_or(""));
  record.status = 200;
  record.stream = true;
  record.total_s = seconds_since(record.arrived);
  try {
    count(record);
  } catch (const std::bad_alloc&) {
    return;  // the answer has begun: it goes on without a line in the log
  }
}

void Service::page(const std::shared_ptr<http::Exchange>& exchange, RequestRecord record) {
  const http::Request& request = exchange->request();
  answer(*exchange, std::move(record), asset_response(request, *web::find_asset(request.path)));
}

void Service::answer_from_worker(const std::shared_ptr<http::Exchange>& exchange,
                                 RequestRecord record, Work work, WorkerPool* workers) {
  key_limits_.arrive(record.owner, /*generates=*/false);
  struct Call {
    std::shared_ptr<RequestBudget> budget;  // ends after what it stands for
    std::string request_body;
    Body body;
  };
  const auto call = std::make_shared<Call>();
  call->budget =
      std::make_shared<RequestBudget>(memory_, config_.max_response_bytes, exchange->take_charge());
  call->request_body = exchange->take_body();
  const auto make_body = [exchange, call, work = std::move(work)] {
    if (exchange->closed()) {
      throw ApiError(499, "invalid_request_error", "The client closed the connection.");
    }
    call->body = work(std::move(call->request_body), *call->budget);
  };
  const std::string client = record.client;
  const auto send = [this, exchange, call, client,
                     record = std::move(record)](const std::exception_ptr& failure) {
    try {
      if (failure) std::rethrow_exception(failure);
      http::Response response;
      if (!call->body.content_type.empty()) response.content_type = call->body.content_type;
      prepare_answer(*exchange, record, response, call->budget);
      send_body(exchange, std::move(response), std::move(call->body.first_piece),
                std::move(call->body.rest), workers_, client);
    } catch (...) {
      refuse(*exchange, record, api_error_of(std::current_exception()));
    }
  };
  run_on_worker(context_, workers == nullptr ? workers_ : *workers, make_body, send, client);
}

void Service::answer(http::Exchange& exchange, RequestRecord record, http::Response response) {
  prepare_answer(exchange, std::move(record), response, nullptr);
  exchange.respond(std::move(response));
}

void Service::prepare_answer(http::Exchange& exchange, RequestRecord record,
                             http::Response& response, std::shared_ptr<RequestBudget> budget) {
  record.status = response.status;
  response.headers.emplace_back("X-Request-Id", record.request_id);
  if (record.method == "POST" && !record.owner.empty())
    key_limits_.add_headers(record.owner, response.headers);
  cors_.add_headers(exchange.request(), response.headers);
  exchange.on_end(
      [this, record = std::move(record), budget = std::move(budget)](bool delivered) mutable {
        if (!delivered) mark_undelivered(record);
        record.total_s = seconds_since(record.arrived);
        count(record);
      });
}

void Service::count(const RequestRecord& record) {
  metrics_.record(record);
  const bool went_well = record.status < 400 && !record.client_disconnected;
  const bool quiet = went_well && std::ranges::any_of(routes(), [&](const Route& route) {
                       return route.quiet && route.path == record.path;
                     });
  if (config_.access_log && !quiet) environment_.log.request(record);
}

void Service::refuse(http::Exchange& exchange, RequestRecord record, const ApiError& error) {
  http::Response response = json_response(error_body(error));
  response.status = error.status;
  record.error = error.what();
  if (error.retry_after_s) {
    response.headers.emplace_back("Retry-After", std::to_string(*error.retry_after_s));
  }
  if (error.allow) response.headers.emplace_back("Allow", *error.allow);
  if (error.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  answer(exchange, std::move(record), std::move(response));
}

void Service::fetch_ready() {
  generations_.fetch_ready();
  metrics_.update(engine_stats(), server_stats());
  admission_.pump();
}

void Service::engine_failed(const std::string& message) {
  if (!std::exchange(engine_failed_, true)) environment_.engine_failed(message);
}

void Service::begin_shutdown() {
  shutting_down_ = true;
  admission_.shut_down();
}

}  // namespace quire::server
