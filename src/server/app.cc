#include "server/app.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <ctime>
#include <filesystem>
#include <mutex>
#include <new>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/memory_limit.h"
#include "quire/async_llm.h"
#include "quire/version.h"
#include "server/post_gate.h"
#include "server/service.h"

namespace quire::server {
namespace {

using Clock = std::chrono::steady_clock;

// How often a server that stops checks whether everything has ended, and how long after the
// time-out it waits for the engine to release what it ran.
constexpr std::chrono::milliseconds kDrainInterval{20};
constexpr std::chrono::seconds kLastWait{5};
// Launchers signal all nodes at once, so this one's own signal comes soon after another node's.
constexpr std::chrono::seconds kOwnSignalWait{2};

const Tokenizer* tokenizer_of(const AsyncLLM& llm) {
  try {
    return &llm.tokenizer();
  } catch (const Error&) {
    return nullptr;
  }
}

const ChatTemplate* chat_template_of(const AsyncLLM& llm) {
  try {
    return &llm.chat_template();
  } catch (const Error&) {
    return nullptr;
  }
}

std::shared_ptr<AdapterList> list_adapters(const ServeOptions& options, const ModelInfo& model,
                                           const AsyncLLM& llm) {
  auto list = std::make_shared<AdapterList>();
  for (const LoraAdapterInfo& adapter : llm.loras()) {
    if (const std::string conflict = name_conflict(model, adapter.name); !conflict.empty()) {
      throw Error("--lora-modules: the name " + conflict);
    }
    const auto parent = options.lora_parents.find(adapter.name);
    list->put({.name = adapter.name,
               .root = adapter.path,
               .parent = parent == options.lora_parents.end() ? model.id : parent->second,
               .created = model.created});
  }
  return list;
}

ModelInfo describe_model(const ServeOptions& options, const AsyncLLM& llm) {
  ModelInfo model;
  std::filesystem::path folder = std::filesystem::path(options.engine.model).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();
  model.id = folder.filename().string();
  if (!options.served_model_names.empty()) {
    model.id = options.served_model_names.front();
    model.aliases.assign(options.served_model_names.begin() + 1, options.served_model_names.end());
  }
  model.root = options.engine.model;
  model.max_model_len = llm.max_model_len();
  model.vocab_size = llm.vocab_size();
  model.defaults = llm.default_sampling_params();
  model.has_tokenizer = tokenizer_of(llm) != nullptr;
  model.has_chat_template = chat_template_of(llm) != nullptr;
  model.created = std::time(nullptr);
  if (options.engine.lora.enabled) model.adapters = list_adapters(options, model, llm);
  model.loads_adapters = options.allow_runtime_lora;
  return model;
}

// The memory that requests may take together: three quarters of what the model leaves, because the
// rest of the process, and errors of the estimates, need room, too.
int64_t memory_for_requests(const ServeOptions& options, const MemoryPlan& plan) {
  constexpr int64_t kLeast = int64_t{64} << 20;
  if (options.max_server_memory) return *options.max_server_memory;
  const int64_t planned = plan.device == "cpu" ? plan.total_bytes : 0;
  return std::max(kLeast, (memory_limit() - planned) / 4 * 3);
}

OutputFormats choose_formats(const ServeOptions& options, const ChatTemplate* chat_template) {
  const OutputFormats detected =
      chat_template == nullptr ? OutputFormats{} : detect_formats(chat_template->source());
  return {.reasoning = reasoning_format_of(options.reasoning_parser, detected),
          .tools = tool_format_of(options.tool_call_parser, detected)};
}

std::vector<std::string> all_keys(const ServeOptions& options) {
  std::vector<std::string> keys = options.api_keys;
  if (!options.api_key_file.empty()) {
    for (std::string& key : read_api_key_file(options.api_key_file)) keys.push_back(std::move(key));
  }
  return keys;
}

KeyLimitTable limits_of(const ServeOptions& options) {
  return options.key_limits_file.empty() ? KeyLimitTable()
                                         : read_key_limit_file(options.key_limits_file);
}

std::unique_ptr<TraceExporter> make_trace_exporter(const ServeOptions& options, AccessLog& log) {
  if (options.otlp_traces_url.empty()) return nullptr;
  return std::make_unique<TraceExporter>(
      TraceExporterConfig{.url = options.otlp_traces_url,
                          .warn = [&log](const std::string& message) { log.warning(message); }});
}

// False, after a pause, where there was no memory for it: requests give theirs back.
template <typename Action>
bool has_memory_for(const Action& action) {
  try {
    action();
    return true;
  } catch (const std::bad_alloc&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return false;
  }
}

// What has to be done although there is no memory for it now.
template <typename Action>
void until_there_is_memory(const Action& action) {
  while (!has_memory_for(action)) {
  }
}

// What is worth a moment's wait and no more: a line of the log.
template <typename Action>
void if_there_is_memory_soon(const Action& action) {
  for (int left = 10; left > 0 && !has_memory_for(action); --left) {
  }
}

http::Response error_response(int status, const std::string& message) {
  constexpr int64_t kRetryAfterSeconds = 1;  // most requests are over by then
  http::Response response;
  response.status = status;
  if (status == 429) {
    response.headers.emplace_back("Retry-After", std::to_string(kRetryAfterSeconds));
    response.body = error_body(rate_limited(message, kRetryAfterSeconds));
    return response;
  }
  response.body = error_body(
      ApiError(status, status >= 500 ? "server_error" : "invalid_request_error", message));
  return response;
}

}  // namespace

class App::Impl {
 public:
  explicit Impl(ServeOptions options);
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void start();
  void reload();
  void stop();
  bool wait();
  uint16_t port() const { return http_->port(); }

 private:
  std::unique_ptr<Service> make_service();
  void begin_stop();
  void drain(Clock::time_point until, bool cut);
  void end_drained();
  void node_leaves(const LeavingNode& node);
  void engine_failed(const std::string& message);
  void finish(bool well);

  ServeOptions options_;
  std::vector<std::string> first_keys_;
  KeyLimitTable first_limits_;
  AccessLog log_;
  std::unique_ptr<TraceExporter> traces_;  // null: none are exported
  std::shared_ptr<PostGate> gate_ = std::make_shared<PostGate>();
  std::unique_ptr<AsyncLLM> llm_;
  std::unique_ptr<EnginePort> engine_;
  std::unique_ptr<http::Server> http_;
  // The same for the I/O thread: it goes on while http_ is destroyed, and http_ is null by then.
  http::Server* server_ = nullptr;
  std::unique_ptr<Service> service_;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::optional<bool> ended_well_;
  bool stopping_ = false;
  bool told_to_stop_ = false;  // itself, not only another node
  std::optional<LeavingNode> leaving_;
  Clock::time_point own_signal_until_{};
  bool failed_ = false;
  TimerQueue timers_;  // last: its calls use the rest
};

App::Impl::Impl(ServeOptions options)
    : options_(std::move(options)),
      first_keys_(all_keys(options_)),
      first_limits_(limits_of(options_)),
      log_({.format = options_.log_format}),
      traces_(make_trace_exporter(options_, log_)) {
  check_metrics_prefix(options_.metrics_prefix);
  const Clock::time_point begin = Clock::now();
  http::Config config = options_.http;
  config.threads = 1;  // the service belongs to one I/O thread
  config.error_response = [this](int status, const std::string& message) {
    log_.info(fmt::format("refused with {} before there was a request: {}", status, message));
    return error_response(status, message);
  };
  config.wants_body = [this](const http::Request& head) { return service_->wants_body(head); };
  config.body_account = [this] { return service_->memory(); };
  http_ = std::make_unique<http::Server>(
      std::move(config), [this](auto exchange) { service_->handle(std::move(exchange)); });
  server_ = http_.get();
  options_.engine.cluster.on_leaving = [this, gate = gate_](const LeavingNode& node) {
    gate->post([this, node] { node_leaves(node); });
  };
  llm_ = std::make_unique<AsyncLLM>(options_.engine);
  engine_ = make_engine_port(*llm_);
  service_ = make_service();
  gate_->open(http_.get());
  llm_->on_failure([this](const std::string& message) {
    gate_->post([this, message] { engine_failed(message); });
  });
  const MemoryPlan& plan = llm_->memory_plan();
  if (!plan.device_note.empty()) log_.warning(plan.device_note);
  log_.info(fmt::format("quire {} loaded {} on {} in {:.2f} s", version(), options_.engine.model,
                        plan.device_name.empty() ? "the CPU" : plan.device_name,
                        std::chrono::duration<double>(Clock::now() - begin).count()));
}

std::unique_ptr<Service> App::Impl::make_service() {
  const EngineConfig& engine = llm_->config();
  ModelInfo model = describe_model(options_, *llm_);
  ServiceConfig config;
  config.admission = {.max_num_queued_requests = options_.max_num_queued_requests,
                      .max_num_seqs = engine.max_num_seqs,
                      .max_loras = engine.lora.enabled ? engine.lora.max_loras : 0};
  config.max_queue_time_s = options_.max_queue_time_s;
  config.api_keys = first_keys_;
  config.key_limits = first_limits_;
  config.doors = {.trusts_its_machine = first_keys_.empty() && is_loopback(options_.http.host),
                  .allowed_hosts = options_.allowed_hosts};
  config.client_weights = options_.client_weights;
  config.allowed_origins = options_.allowed_origins;
  config.parse_special_tokens = options_.engine.parse_special_tokens;
  config.share_cache_between_keys = options_.share_cache_between_keys;
  config.formats = choose_formats(options_, chat_template_of(*llm_));
  config.access_log = options_.access_log;
  config.log_requests = options_.log_requests;
  config.lora_dir = options_.lora_dir;
  config.request_log.max_requests = static_cast<size_t>(options_.max_finished_requests);
  config.max_response_bytes = options_.max_response_bytes;
  config.max_server_memory = memory_for_requests(options_, llm_->memory_plan());
  config.metrics.prefix = options_.metrics_prefix;
  config.metrics.model_name = model.id;
  config.metrics.max_model_len = model.max_model_len;
  config.metrics.block_size = engine.block_size;
  config.metrics.num_kv_blocks = llm_->stats().num_kv_blocks;
  config.metrics.enable_prefix_caching = engine.enable_prefix_caching;
  config.metrics.cache_dtype = cache_dtype_of(engine);
  config.metrics.num_stages = engine.pipeline_parallel_size;
  if (engine.lora.enabled) config.metrics.max_loras = engine.lora.max_loras;
  config.metrics.num_nodes = engine.cluster.num_nodes;
  if (engine.speculative_config) {
    config.metrics.num_speculative_tokens = engine.speculative_config->num_speculative_tokens;
  }
  return std::make_unique<Service>(
      std::move(config), std::move(model),
      ServiceEnvironment{
          .engine = *engine_,
          .log = log_,
          .tokenizer = tokenizer_of(*llm_),
          .chat_template = chat_template_of(*llm_),
          .traces = traces_.get(),
          .post = [gate = gate_](std::function<void()> task) { gate->post(std::move(task)); },
          .http_stats = [server = server_] { return server->stats(); },
          .engine_failed = [this](const std::string& message) { engine_failed(message); }});
}

App::Impl::~Impl() {
  llm_->on_failure({});
  gate_->close();
  http_.reset();  // no I/O thread from here on
  service_.reset();
}

void App::Impl::start() {
  http_->start();
  const std::string& host = options_.http.host;
  if (first_keys_.empty() && !is_loopback(host)) {
    log_.warning(
        "everyone who reaches this address may use the server: it has no API keys "
        "(--api-key-file)");
  }
  log_.info(fmt::format("serving at {}://{}:{}",
                        options_.http.tls_certificate_file.empty() ? "http" : "https",
                        host.find(':') == std::string::npos ? host : "[" + host + "]", port()));
}

void App::Impl::reload() {
  // One after the other, so that one broken file keeps none of the others from being read.
  const auto read_again = [this](const std::string& file, const auto& read) {
    if (file.empty()) return;
    try {
      until_there_is_memory(read);
      until_there_is_memory([&] { log_.info(fmt::format("read {} again", file)); });
    } catch (const std::exception& error) {
      until_there_is_memory(
          [&] { log_.error(fmt::format("{} stays in force as it was: {}", file, error.what())); });
    }
  };
  // They are moved to where they are used, which takes no memory.
  read_again(options_.api_key_file, [this] {
    gate_->post([this, keys = std::make_shared<ApiKeys>(all_keys(options_))] {
      service_->set_keys(std::move(*keys));
    });
  });
  read_again(options_.key_limits_file, [this] {
    gate_->post([this, limits = std::make_shared<KeyLimitTable>(limits_of(options_))] {
      service_->set_key_limits(std::move(*limits));
    });
  });
  read_again(options_.http.tls_certificate_file, [this] { http_->reload_tls(); });
}

void App::Impl::stop() {
  until_there_is_memory([this] {
    gate_->post([this] {
      told_to_stop_ = true;
      begin_stop();
    });
  });
}

// On the I/O thread.
void App::Impl::begin_stop() {
  if (std::exchange(stopping_, true)) return;
  service_->begin_shutdown();
  if_there_is_memory_soon([this] {
    log_.info(fmt::format("stopping; requests that may finish within {} s (--shutdown-timeout): {}",
                          options_.shutdown_timeout_s, service_->num_generations()));
  });
  drain(Clock::now() + std::chrono::duration_cast<Clock::duration>(
                           std::chrono::duration<double>(options_.shutdown_timeout_s)),
        false);
}

// On the I/O thread. Another node was told to stop: the group ends as if this one had been.
void App::Impl::node_leaves(const LeavingNode& node) {
  if (leaving_) return;
  until_there_is_memory([&] { leaving_ = node; });
  if_there_is_memory_soon([&] { log_.warning(node.sentence); });
  own_signal_until_ = Clock::now() + kOwnSignalWait;
  begin_stop();
}

// On the I/O thread. Where only another node was told to stop, every node says so and fails, so
// that a launcher starts the group again.
void App::Impl::end_drained() {
  if (!leaving_ || told_to_stop_ || failed_) {
    finish(!failed_);
  } else if (Clock::now() >= own_signal_until_) {
    leaving_->end_group();  // engine_failed() follows
  } else {
    until_there_is_memory([this] {
      timers_.after(kDrainInterval, [this] { gate_->post([this] { end_drained(); }); });
    });
  }
}

// On the I/O thread. An answer counts as given when the socket has taken it.
void App::Impl::drain(Clock::time_point until, bool cut) {
  if (service_->num_generations() == 0) {
    // Clients that keep asking, for metrics perhaps, would keep it busy.
    until_there_is_memory([this] { server_->stop_accepting(); });
    if (server_->num_active() == 0) {
      end_drained();
      return;
    }
  }
  if (Clock::now() >= until) {
    if (cut) {
      end_drained();
      return;
    }
    const size_t num_generations = service_->num_generations();
    until_there_is_memory([this] { service_->cut_short(); });
    if_there_is_memory_soon([&] {
      log_.warning(fmt::format(
          "requests that did not finish in time and end with what they have: {}", num_generations));
    });
    cut = true;
    until = Clock::now() + kLastWait;
  }
  until_there_is_memory([=, this] {
    timers_.after(kDrainInterval,
                  [=, this] { gate_->post([this, until, cut] { drain(until, cut); }); });
  });
}

// On the I/O thread.
void App::Impl::engine_failed(const std::string& message) {
  if (std::exchange(failed_, true)) return;
  if_there_is_memory_soon(
      [&] { log_.error(fmt::format("the engine has failed, and the server ends: {}", message)); });
  // Gives answers with this failure a moment to be sent.
  until_there_is_memory(
      [this] { timers_.after(std::chrono::seconds(1), [this] { finish(false); }); });
}

void App::Impl::finish(bool well) {
  {
    const std::lock_guard lock(mutex_);
    if (!ended_well_) ended_well_ = well;
  }
  ended_.notify_all();
}

bool App::Impl::wait() {
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [this] { return ended_well_.has_value(); });
  if (*ended_well_) until_there_is_memory([this] { log_.info("stopped"); });
  return *ended_well_;
}

App::App(ServeOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
App::~App() = default;
void App::start() {
  impl_->start();
}
uint16_t App::port() const {
  return impl_->port();
}
void App::reload() {
  impl_->reload();
}
void App::stop() {
  impl_->stop();
}
bool App::wait() {
  return impl_->wait();
}

}  // namespace quire::server
