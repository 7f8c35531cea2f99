// quire serve: the OpenAI-compatible server.
#include <fmt/format.h>
#include <malloc.h>
#include <unistd.h>

#include <mutex>
#include <ostream>

#include "base/memory_reserve.h"
#include "cli/commands/command.h"
#include "cli/loading.h"
#include "cli/node.h"
#include "cli/options/lora_options.h"
#include "cli/options/option_helpers.h"
#include "cli/options/serve_options.h"
#include "cli/terminal/stop_signals.h"
#include "cli/usage_error.h"

namespace quire::cli {
namespace {

constexpr const char* kServeFooter =
    R"(The API is OpenAI's: /v1/chat/completions, /v1/completions, /v1/models; besides, /tokenize, /detokenize,
/health, /ready, /version, /metrics, /v1/requests/{id} and /openapi.json, which describes them all. A chat for
the browser is at /.

SIGTERM or Ctrl-C: no new requests, and those that run may finish (--shutdown-timeout); a second one ends
the server at once. SIGHUP: the files of keys, of their limits and of TLS are read again.

Examples:
  quire serve
  quire serve ~/models/Qwen3-0.6B --port 8080 --api-key-file keys.txt
  quire serve Qwen/Qwen3-0.6B --host 0.0.0.0 --ssl-certfile cert.pem --ssl-keyfile key.pem
  quire serve MODEL --tensor-parallel-size 2 --nnodes 2 --node-rank 1 --master-addr 10.0.0.1
  quire serve Qwen/Qwen3-0.6B --enable-lora --max-loras 2 --lora-modules caps=./caps rhyme=./rhyme
  curl http://127.0.0.1:8000/v1/chat/completions -H 'Content-Type: application/json' \
    -d '{"messages": [{"role": "user", "content": "define apple"}]}')";

// Has glibc give large blocks back to the system when they are freed. By itself it stops doing so
// with the first block of a size that is freed, and the bodies of a year's requests leave holes in
// the memory that is kept.
void keep_no_large_blocks() {
  constexpr int kLargeBlockBytes = 256 << 10;
  ::mallopt(M_MMAP_THRESHOLD, kLargeBlockBytes);
}

class ServeCommand : public Command {
 public:
  explicit ServeCommand(CLI::App& root)
      : app_(add_command(root, "serve", "Serve a model with an OpenAI-compatible API",
                         kServeFooter)) {
    add_serve_options(*app_, arguments_);
  }

  const CLI::App& app() const override { return *app_; }

  int run(Terminal& terminal) override {
    keep_no_large_blocks();
    MemoryReserve::let_new_use_them();
    server::ServeOptions options = complete(arguments_);
    check_lora_engine_options(*app_, options.engine.lora);
    options.engine = ready_to_load(std::move(options.engine), terminal);
    if (options.engine.cluster.node_rank > 0) {
      return run_node(options.engine, options.shutdown_timeout_s, terminal);
    }
    std::mutex mutex;
    server::App* serving = nullptr;
    bool ended = false;
    bool reload_at_start = false;
    const auto stop = [&](int number, int count) {
      const std::lock_guard lock(mutex);
      if (ended && count == 1) return;  // it ends as it is
      // Before it serves there is nothing to finish.
      if (serving == nullptr || count > 1) {
        if (count > 1) terminal.err << "quire: ended at once by a second signal" << std::endl;
        _exit(128 + number);
      }
      serving->stop();
    };
    const auto reload = [&] {
      const std::lock_guard lock(mutex);
      reload_at_start = serving == nullptr;
      if (serving != nullptr) serving->reload();
    };
    const StopSignals signals(stop, reload);
    server::App app(std::move(options));
    const auto set_serving = [&](server::App* value) {
      const std::lock_guard lock(mutex);
      serving = value;
      ended = value == nullptr;
      if (value != nullptr && reload_at_start) value->reload();
    };
    // Who reads "serving at" may send a signal at once.
    set_serving(&app);
    try {
      app.start();
    } catch (...) {
      set_serving(nullptr);
      throw;
    }
    const bool well = app.wait();
    set_serving(nullptr);
    return well ? kExitOk : kExitFailure;
  }

 private:
  CLI::App* app_;
  ServeArguments arguments_;
};

}  // namespace

std::unique_ptr<Command> make_serve_command(CLI::App& root) {
  return std::make_unique<ServeCommand>(root);
}

}  // namespace quire::cli
