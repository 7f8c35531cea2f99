#include "cli/options/serve_options.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <limits>
#include <utility>

#include "cli/options/engine_options.h"
#include "cli/options/lora_options.h"
#include "cli/options/option_helpers.h"
#include "cli/usage_error.h"
#include "parsers/parser_formats.h"
#include "server/observe/http_post.h"
#include "server/observe/metrics.h"

namespace quire::cli {
namespace {

constexpr const char* kServeGroup = "Server";
constexpr const char* kKeyVariable = "QUIRE_API_KEY";
// Long enough for a person, and short enough that a step's own cost stays small beside it.
constexpr double kTargetStep = 0.5;

void add_seconds(CLI::App& app, const std::string& option, double& value, double most,
                 const std::string& help) {
  add_number(app, {option, "SECONDS", fmt::format("{} [{}]", help, value), kServeGroup}, value,
             [most](const std::string& text) -> std::string {
               char* end = nullptr;
               const double seconds = std::strtod(text.c_str(), &end);
               if (*end == '\0' && seconds >= 0 && seconds <= most) return "";
               return fmt::format("expected 0 to {} seconds, got '{}'", most, text);
             });
}

void add_count(CLI::App& app, const std::string& option, int64_t least, int64_t most,
               const std::function<void(int64_t)>& set, const std::string& help) {
  add_value(app, {option, "N", help, kServeGroup},
            [option, least, most, set](const std::string& text) {
              const int64_t value = parse_count(text, option);
              if (value < least || value > most) {
                throw UsageError(
                    fmt::format("{}: expected {} to {}, got {}", option, least, most, value));
              }
              set(value);
            });
}

std::vector<std::string> as_strings(const std::vector<std::string_view>& names) {
  return {names.begin(), names.end()};
}

void add_listening_options(CLI::App& app, server::ServeOptions& options) {
  add_text(app,
           {"--host", "ADDRESS",
            fmt::format("Address to listen on; 0.0.0.0 or :: for all [{}]", options.http.host),
            kServeGroup},
           options.http.host);
  add_count(
      app, "--port", 0, std::numeric_limits<uint16_t>::max(),
      [&options](int64_t value) { options.http.port = static_cast<uint16_t>(value); },
      fmt::format("Port to listen on; 0: any that is free [{}]", options.http.port));
  add_text(app,
           {"--ssl-certfile", "FILE",
            "Certificate chain (PEM) for TLS, with --ssl-keyfile [no TLS]", kServeGroup},
           options.http.tls_certificate_file);
  add_text(app, {"--ssl-keyfile", "FILE", "Private key (PEM) for TLS", kServeGroup},
           options.http.tls_key_file);
  add_count(
      app, "--max-connections", 1, 1'000'000,
      [&options](int64_t value) { options.http.limits.max_connections = value; },
      fmt::format("Connections at a time [{}]", options.http.limits.max_connections));
  add_count(
      app, "--max-body-bytes", 1024, int64_t{1} << 30,
      [&options](int64_t value) {
        options.http.limits.max_body_bytes = static_cast<size_t>(value);
      },
      "The longest body of a request [32M]");
}

void add_access_options(CLI::App& app, server::ServeOptions& options) {
  add_text_list(app,
                {"--api-key", "KEY",
                 fmt::format("A key that opens the API; may be given again. Others on this machine "
                             "see it in the list of processes: prefer --api-key-file or {} [none "
                             "is needed]",
                             kKeyVariable),
                 kServeGroup},
                options.api_keys);
  add_text(
      app,
      {"--api-key-file", "FILE", "A file with one key a line; SIGHUP reads it again", kServeGroup},
      options.api_key_file);
  add_text(app,
           {"--key-limits", "FILE",
            "A JSON file of what each key may use: requests and tokens a minute, requests at a "
            "time; SIGHUP reads it again [all]",
            kServeGroup},
           options.key_limits_file);
  add_comma_list(app,
                 {"--allowed-hosts", "LIST",
                  "Names under which clients reach this server, separated by commas: others are "
                  "refused. Without keys on this machine's loopback, localhost and its addresses "
                  "always are [there, only those; elsewhere any]",
                  kServeGroup},
                 options.allowed_hosts);
  add_text_list(app,
                {"--allowed-origins", "ORIGIN",
                 "Web pages of this origin may call the API (CORS), \"*\": of any; may be given "
                 "again [none but its own]",
                 kServeGroup},
                options.allowed_origins);
  add_choice(
      app, "--prefix-cache-scope", {"key", "global"},
      [&options](const std::string& text) { options.share_cache_between_keys = text == "global"; },
      "Who shares cached prefixes: requests of the same API key, or all [key]", kServeGroup);
}

void add_weight_options(CLI::App& app, ServeArguments& arguments) {
  add_comma_list(
      app,
      {"--client-weights", "NAME=WEIGHT",
       "A client's share beside others, 0.01 to 100; may be given again. A client is a key, named "
       "key-1a2b3c4d in the log, or an address where there are no keys [1 each]",
       kServeGroup},
      arguments.client_weights);
}

void add_load_options(CLI::App& app, server::ServeOptions& options) {
  add_count(
      app, "--max-num-queued-requests", 0, 1'000'000,
      [&options](int64_t value) { options.max_num_queued_requests = value; },
      fmt::format("Requests that may wait for their turn; more are refused with 429 [{}]",
                  options.max_num_queued_requests));
  add_count(
      app, "--max-response-bytes", 1024, int64_t{1} << 40,
      [&options](int64_t value) { options.max_response_bytes = value; },
      fmt::format("The longest answer that is not streamed; a request for more is refused with 400 "
                  "[{}]",
                  options.max_response_bytes));
  add_count(
      app, "--max-server-memory", 1 << 20, int64_t{1} << 50,
      [&options](int64_t value) { options.max_server_memory = value; },
      "Bytes of memory that requests may take together: bodies, prompts, answers; what does not "
      "fit "
      "is refused with 429 [three quarters of what the model leaves of the machine's memory or the "
      "container's]");
  add_seconds(app, "--max-queue-time", options.max_queue_time_s, 1e6,
              "The longest that a request may wait before it is refused; 0: no limit");
  add_seconds(app, "--shutdown-timeout", options.shutdown_timeout_s, 1e6,
              "How long what runs may go on when the server is told to stop");
  options.engine.target_step_s = kTargetStep;
  add_seconds(app, "--target-step-time", options.engine.target_step_s, 3600,
              "How long a step may hold up those that wait for their next token, and newcomers: "
              "prompts are computed in parts that fit; 0: no limit");
}

void add_model_options(CLI::App& app, server::ServeOptions& options) {
  add_text_list(app,
                {"--served-model-name", "NAME",
                 "A name for the model in the API; may be given again [the folder's]", kServeGroup},
                options.served_model_names);
  add_choice(
      app, "--reasoning-parser", as_strings(reasoning_format_names()),
      [&options](const std::string& text) { options.reasoning_parser = text; },
      "How the model marks what it thinks [auto: as its chat template says]", kServeGroup);
  add_choice(
      app, "--tool-call-parser", as_strings(tool_format_names()),
      [&options](const std::string& text) { options.tool_call_parser = text; },
      "How the model writes tool calls [auto]", kServeGroup);
}

void add_adapter_options(CLI::App& app, ServeArguments& arguments) {
  constexpr const char* kGroup = "LoRA adapters";
  server::ServeOptions& options = arguments.options;
  add_lora_engine_options(app, options.engine.lora);
  add_several(
      app,
      {"--lora-modules", "NAME=PATH",
       "Adapters to load at the start: names, and folders that PEFT has saved; or vLLM's JSON, "
       "'{\"name\": \"x\", \"path\": \"...\", \"base_model_name\": \"...\"}'. MODEL goes before "
       "them",
       kGroup},
      arguments.lora_modules);
  add_flag(app,
           {"--allow-runtime-lora", "",
            "Clients may load and unload adapters: POST /v1/load_lora_adapter and "
            "/v1/unload_lora_adapter. Whoever may use the API then may have this machine read any "
            "folder: see --lora-dir [off]",
            kGroup},
           options.allow_runtime_lora);
  add_text(app,
           {"--lora-dir", "FOLDER",
            "Clients load adapters from below this folder only; links may not leave it [any "
            "folder]",
            kGroup},
           options.lora_dir);
}

void complete_adapters(const ServeArguments& arguments, server::ServeOptions& options) {
  const bool enabled = options.engine.lora.enabled;
  for (const auto& [given, option] :
       {std::pair(!arguments.lora_modules.empty(), "--lora-modules"),
        std::pair(options.allow_runtime_lora, "--allow-runtime-lora")}) {
    if (given && !enabled) throw UsageError(fmt::format("{} needs --enable-lora", option));
  }
  if (!options.lora_dir.empty()) {
    if (!options.allow_runtime_lora) throw UsageError("--lora-dir needs --allow-runtime-lora");
    if (!std::filesystem::is_directory(options.lora_dir)) {
      throw UsageError(fmt::format("--lora-dir: there is no folder {}", options.lora_dir));
    }
  }
  for (const std::string& text : arguments.lora_modules) {
    LoraModuleArgument module = parse_lora_module(text, "--lora-modules");
    check_new_name(options.engine.lora.modules, module.adapter.name, "--lora-modules");
    if (!module.base_model_name.empty()) {
      options.lora_parents[module.adapter.name] = module.base_model_name;
    }
    options.engine.lora.modules.push_back(std::move(module.adapter));
  }
}

void add_reporting_options(CLI::App& app, server::ServeOptions& options) {
  add_text(
      app,
      {"--metrics-prefix", "PREFIX",
       fmt::format("In front of the names in /metrics; vllm: for dashboards made for vLLM [{}]",
                   options.metrics_prefix),
       kServeGroup},
      options.metrics_prefix, [](const std::string& text) -> std::string {
        try {
          server::check_metrics_prefix(text);
          return "";
        } catch (const Error& error) {
          return error.what();
        }
      });
  add_choice(
      app, "--log-format", {"text", "json"},
      [&options](const std::string& text) { options.log_format = *server::parse_log_format(text); },
      "Lines on standard error [text]", kServeGroup);
  add_switch(
      app, "access-log", true, [&options](bool value) { options.access_log = value; },
      "Write no line for each request [off]", kServeGroup);
  add_switch(
      app, "log-requests", false, [&options](bool value) { options.log_requests = value; },
      "Write a line with all that is known of each generation that ends: steps, preemptions, times "
      "of its first and last token, too; never text [off]",
      kServeGroup);
  add_count(
      app, "--max-finished-requests", 0, 1'000'000,
      [&options](int64_t value) { options.max_finished_requests = value; },
      fmt::format("Generations that are over and that /v1/requests/ID still explains, in 16M of "
                  "memory at most [{}]",
                  options.max_finished_requests));
}

void add_trace_options(CLI::App& app, server::ServeOptions& options) {
  add_text(
      app,
      {"--otlp-traces-endpoint", "URL",
       "Send a span for each generation to this OpenTelemetry collector (OTLP over HTTP, JSON); "
       "without a path: /v1/traces [none]",
       kServeGroup},
      options.otlp_traces_url);
}

// As browsers send it in the Origin header.
void check_origin(const std::string& origin) {
  const size_t scheme = origin.find("://");
  const bool valid = scheme != std::string::npos && scheme > 0 && scheme + 3 < origin.size() &&
                     origin.find('/', scheme + 3) == std::string::npos &&
                     origin.find_first_of(" \"[],") == std::string::npos;
  if (valid || origin == "*") return;
  throw UsageError(fmt::format(
      "--allowed-origins: expected an origin like https://chat.example.com, or *, got '{}'",
      origin));
}

void check_host_name(const std::string& name) {
  if (!name.empty() && name.find_first_of("/ \"@") == std::string::npos) return;
  throw UsageError(fmt::format(
      "--allowed-hosts: expected names like chat.example.com, separated by commas, got '{}'",
      name));
}

}  // namespace

void add_serve_options(CLI::App& app, ServeArguments& arguments) {
  add_listening_options(app, arguments.options);
  add_access_options(app, arguments.options);
  add_model_options(app, arguments.options);
  add_load_options(app, arguments.options);
  add_weight_options(app, arguments);
  add_reporting_options(app, arguments.options);
  add_trace_options(app, arguments.options);
  add_adapter_options(app, arguments);
  add_engine_options(app, arguments.options.engine, /*seed_is_taken=*/false);
}

server::ServeOptions complete(const ServeArguments& arguments) {
  server::ServeOptions options = arguments.options;
  if (options.http.tls_certificate_file.empty() != options.http.tls_key_file.empty()) {
    throw UsageError("TLS takes both --ssl-certfile and --ssl-keyfile");
  }
  if (const char* key = std::getenv(kKeyVariable); key != nullptr) {
    // A secret that was to be there and is not must not open the server to all.
    if (*key == '\0') throw UsageError(fmt::format("{} is set, but empty", kKeyVariable));
    options.api_keys.emplace_back(key);
  }
  for (const std::string& name : options.served_model_names) {
    if (name.empty()) throw UsageError("--served-model-name: expected at least one character");
  }
  for (const std::string& origin : options.allowed_origins) check_origin(origin);
  for (const std::string& name : options.allowed_hosts) check_host_name(name);
  if (!options.key_limits_file.empty() && options.api_keys.empty() &&
      options.api_key_file.empty()) {
    throw UsageError("--key-limits: there are no keys to limit; expected --api-key-file, too");
  }
  if (!options.otlp_traces_url.empty()) {
    try {
      options.otlp_traces_url = server::otlp_traces_url(options.otlp_traces_url);
    } catch (const Error& error) {
      throw UsageError(fmt::format("--otlp-traces-endpoint: {}", error.what()));
    }
  }
  try {
    options.client_weights = server::ClientWeights(arguments.client_weights);
  } catch (const Error& error) {
    throw UsageError(fmt::format("--client-weights: {}", error.what()));
  }
  complete_adapters(arguments, options);
  std::string& host = options.http.host;
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  for (const std::string& key : options.api_keys) {
    if (key.empty()) throw UsageError("--api-key: expected a key of at least one character");
  }
  // A name of the hub is what clients would call it; a folder is called by its last part.
  if (options.served_model_names.empty() && !options.engine.model.empty() &&
      !std::filesystem::exists(options.engine.model)) {
    options.served_model_names = {options.engine.model};
  }
  return options;
}

}  // namespace quire::cli
