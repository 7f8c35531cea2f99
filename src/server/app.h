#pragma once
// The whole server: binds its port, loads the model, serves until it is told to stop.
//
// Thread safety: the constructor, start() and wait() from one thread; stop(), reload() and port()
// from any.
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "http/server.h"
#include "quire/engine_config.h"
#include "server/client_weights.h"
#include "server/observe/access_log.h"

namespace quire::server {

struct ServeOptions {
  EngineConfig engine{};  // its model is a folder
  // Names that clients may use; answers carry the first. Empty: the folder's name.
  std::vector<std::string> served_model_names{};
  http::Config http{};
  std::vector<std::string> api_keys{};  // without any, and no file: none is needed
  std::string api_key_file{};           // with more of them; empty: none
  std::string key_limits_file{};        // what each key may use (read_key_limit_file); empty: all
  std::vector<std::string> allowed_hosts{};  // names of this server, as in DoorConfig
  std::vector<std::string> allowed_origins{};
  int64_t max_num_queued_requests = 2048;
  double max_queue_time_s = 300;                    // 0: no limit
  double shutdown_timeout_s = 30;                   // for what runs when it is told to stop
  int64_t max_response_bytes = int64_t{512} << 20;  // of a whole answer
  // Memory that requests may take together; unset: most of the machine's or the container's memory
  // that the model leaves.
  std::optional<int64_t> max_server_memory{};
  bool share_cache_between_keys = false;
  ClientWeights client_weights{};
  std::string reasoning_parser = "auto";
  std::string tool_call_parser = "auto";
  // Names of the parents of engine.lora's adapters in /v1/models, by adapter; for others the served
  // model.
  std::map<std::string, std::string> lora_parents{};
  bool allow_runtime_lora = false;  // clients may load and unload adapters
  std::string lora_dir{};           // ... from below this folder; empty: from anywhere
  std::string metrics_prefix = "quire:";
  LogFormat log_format = LogFormat::kText;
  bool access_log = true;
  bool log_requests = false;             // a line with all facts for each generation
  int64_t max_finished_requests = 1024;  // that /v1/requests/{request_id} still explains
  std::string otlp_traces_url{};         // as otlp_traces_url() gives it; empty: no traces
};

class App {
 public:
  // Binds the port first, so that a port in use is noticed before a large model is loaded. Throws
  // Error.
  explicit App(ServeOptions options);
  // Cuts off what is still under way.
  ~App();
  App(const App&) = delete;
  App& operator=(const App&) = delete;

  void start();
  uint16_t port() const;

  // Reads the files of keys, their limits, and the certificate again, for requests and connections
  // from now on. A file that cannot be used is reported in the log, and its old content stays in
  // force.
  void reload();

  // Refuses new requests from now on, gives running ones shutdown_timeout_s to finish, then ends
  // them with what they have. Returns at once. Further calls have no effect. Before
  // start(), it ends as soon as it has started.
  void stop();
  // Waits until stop() has done its work (true), or the engine has failed (false).
  bool wait();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire::server
