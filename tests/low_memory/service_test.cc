// Each allocation of a request fails once, in turn, over a whole server on an engine that computes
// nothing: the request ends, with what it would have got or with an error, the process lives, and
// the next request finds everything as it was.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "http/server.h"
#include "http/test_client.h"
#include "low_memory/failing_allocator.h"
#include "low_memory/instant_engine.h"
#include "server/api/api_test_util.h"
#include "server/post_gate.h"
#include "server/service.h"

namespace quire::server {
namespace {

using low_memory::FailOne;

std::string ask(const std::string& method, const std::string& path, const std::string& headers = {},
                const std::string& body = {}) {
  return method + " " + path +
         " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer secret\r\nX-Request-Id: r\r\n" + headers +
         "\r\n" + body;
}
std::string get(const std::string& path) {
  return ask("GET", path);
}
std::string post(const std::string& path, const std::string& body) {
  return ask(
      "POST", path,
      "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n",
      body);
}

// A chat whose answer has to be a call.
std::string forced_call(const std::string& fields) {
  return post("/v1/chat/completions",
              R"({"messages": [{"role": "user", "content": "ab"}], "max_tokens": 30,
                  "tools": [{"type": "function", "function": {"name": "f", "parameters": {
                      "type": "object", "properties": {"a": {"type": "integer"}}}}}],
                  "tool_choice": )" +
                  fields + "}");
}

struct Case {
  std::string name;
  std::string request;
  bool repeats = true;      // the same request has the same answer
  std::string before = {};  // a request that comes first, each time
  size_t token_bytes = 2;
  // What the client does: it opens a connection, where there is one from before else; it leaves
  // once it has the answer's head.
  bool connects = false;
  bool leaves = false;
};

Case with_long_tokens(Case tested) {
  tested.token_bytes = 160'000;
  return tested;
}
Case where_client_connects(Case tested) {
  tested.connects = true;
  return tested;
}
Case where_client_leaves(Case tested) {
  tested.leaves = true;
  return tested;
}

std::vector<Case> cases() {
  return {
      Case{"chat", post("/v1/chat/completions",
                        R"({"messages": [{"role": "user", "content": "abab"}], "max_tokens": 2,
                              "logprobs": true, "top_logprobs": 1})")},
      Case{"chat_stream",
           post("/v1/chat/completions",
                R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "ab"}]}],
                      "tools": [{"type": "function", "function": {"name": "f"}}],
                      "tool_choice": "none", "max_tokens": 3, "stream": true,
                      "stream_options": {"include_usage": true}})")},
      Case{"completion", post("/v1/completions",
                              R"({"prompt": ["ab", "abab"], "n": 2, "max_tokens": 2, "echo": true,
                                    "logprobs": 1, "prompt_logprobs": 1, "timeout": 100})")},
      Case{"completion_stream",
           post("/v1/completions", R"({"prompt": [0, 1], "max_tokens": 3, "stream": true})")},
      Case{"resumable_stream",
           post("/v1/completions", R"({"prompt": [0, 1], "max_tokens": 3, "stream": true,
                                         "stream_options": {"resumable": true}})")},
      Case{"resumed_stream", get("/v1/requests/r/events"), /*repeats=*/true,
           post("/v1/completions", R"({"prompt": [0, 1], "max_tokens": 3, "stream": true,
                                         "stream_options": {"resumable": true}})")},
      // An answer of several pieces.
      with_long_tokens({"long_completion",
                        post("/v1/completions",
                             R"({"prompt": [0, 1], "n": 2, "max_tokens": 2, "logprobs": 1})")}),
      Case{"timed_out",
           post("/v1/completions", R"({"prompt": [0, 1], "max_tokens": 990, "timeout": 0.002})"),
           /*repeats=*/false},
      Case{"stream_timed_out",
           post("/v1/completions", R"({"prompt": [0, 1], "max_tokens": 990, "timeout": 0.002,
                                         "stream": true})"),
           /*repeats=*/false},
      where_client_leaves(
          {"stream_left",
           post("/v1/completions", R"({"prompt": [0, 1], "max_tokens": 990, "stream": true})")}),
      Case{"refused", post("/v1/completions", R"({"prompt": 1, "max_tokens": -1})")},
      Case{"malformed", post("/v1/completions", R"({"prompt": )")},
      Case{"tokenize", post("/tokenize", R"({"prompt": "abab", "return_token_strs": true})")},
      Case{"tokenize_chat",
           post("/tokenize", R"({"messages": [{"role": "user", "content": "ab"}]})")},
      Case{"detokenize", post("/detokenize", R"({"tokens": [2, 0, 1]})")},
      Case{"large_body", post("/tokenize", R"({"prompt": ")" + std::string(20'000, 'a') + R"("})")},
      Case{"response_format",
           post("/v1/chat/completions",
                R"({"messages": [{"role": "user", "content": "ab"}], "max_tokens": 2,
                      "response_format": {"type": "json_object"}})")},
      Case{"forced_call", forced_call(R"("required")")},
      Case{"forced_call_stream",
           forced_call(R"({"type": "function", "function": {"name": "f"}}, "stream": true)")},
      Case{"load_adapter", post("/v1/load_lora_adapter",
                                R"({"lora_name": "x", "lora_path": "/", "load_inplace": true})")},
      Case{"unload_adapter", post("/v1/unload_lora_adapter", R"({"lora_name": "x"})"),
           /*repeats=*/true,
           post("/v1/load_lora_adapter",
                R"({"lora_name": "x", "lora_path": "/", "load_inplace": true})")},
      Case{"explain_one_that_was", get("/v1/requests/r"), /*repeats=*/false,
           post("/v1/completions", R"({"prompt": [0, 1], "max_tokens": 2})")},
      Case{"models", get("/v1/models")}, Case{"model", get("/v1/models/lexicon")},
      Case{"explain", get("/v1/requests/none")}, Case{"health", get("/health")},
      Case{"ready", get("/ready")}, Case{"version", get("/version")},
      Case{"metrics", get("/metrics"), /*repeats=*/false}, Case{"openapi", get("/openapi.json")},
      Case{"page", get("/")}, Case{"nowhere", get("/nowhere")},
      Case{"wrong_method", get("/v1/completions")}, Case{"head", ask("HEAD", "/v1/models")},
      Case{"preflight", ask("OPTIONS", "/v1/completions",
                            "Origin: http://page.example\r\n"
                            "Access-Control-Request-Method: POST\r\n")},
      Case{"without_key", "GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n"},
      Case{"foreign_host", "GET /v1/models HTTP/1.1\r\nHost: y\r\n\r\n"},
      Case{"compressed", ask("POST", "/tokenize", "Content-Encoding: gzip\r\n", "")},
      Case{"chunked", ask("POST", "/tokenize", "Transfer-Encoding: chunked\r\n",
                          "10\r\n{\"prompt\": \"ab\"}\r\n0\r\n\r\n")},
      where_client_connects({"connects", get("/health")}),
      where_client_connects(
          {"connects_and_asks", post("/v1/completions", R"({"prompt": [0], "max_tokens": 2})")})};
}

std::string token_text(const Case& tested) {
  std::string text;
  while (text.size() < tested.token_bytes) text += "ab";
  return text;
}

// A stream that can be resumed is forgotten within a second where none is resumed by the case.
std::chrono::duration<double> resume_within(const Case& tested) {
  return std::chrono::milliseconds(tested.before.empty() ? 5 : 600'000);
}

class LowMemoryService : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    low_memory::exempt_this_thread();
    ServiceConfig config;
    config.admission = {.max_num_queued_requests = 8, .max_num_seqs = 8};
    config.max_queue_time_s = 300;
    config.metrics.max_model_len = test_model().max_model_len;
    config.num_workers = config.num_compilers = 1;
    config.api_keys = {"secret"};
    config.key_limits.others = {.requests_per_minute = 1'000'000'000,
                                .tokens_per_minute = 1'000'000'000'000,
                                .concurrent_requests = 2};
    config.allowed_origins = {"http://page.example"};
    config.doors.allowed_hosts = {"x"};
    config.log_requests = true;
    config.formats.tools = ToolFormat::kHermes;
    config.resumable.resume_within = resume_within(GetParam());
    http::Config http = http::test_config();
    http.wants_body = [this](const http::Request& head) { return service_->wants_body(head); };
    http.body_account = [this] { return service_->memory(); };
    ModelInfo model = test_model();
    model.adapters = std::make_shared<AdapterList>();
    model.loads_adapters = true;
    server_ = std::make_unique<http::Server>(
        std::move(http), [this](auto exchange) { service_->handle(std::move(exchange)); });
    // server_ is null while the server is destroyed, and its thread still runs.
    http::Server* const server = server_.get();
    gate_.open(server);
    service_ = std::make_unique<Service>(
        std::move(config), std::move(model),
        ServiceEnvironment{
            .engine = engine_,
            .log = log_,
            .tokenizer = &tokenizer_,
            .chat_template = &chat_template_,
            .traces = &traces_,
            .post = [this](std::function<void()> task) { gate_.post(std::move(task)); },
            .http_stats = [server] { return server->stats(); },
            .engine_failed = [](const std::string&) { FAIL(); }});
    server_->start();
  }
  void TearDown() override {
    client_.reset();
    gate_.close();
    server_.reset();  // no I/O thread from here on
    service_.reset();
  }

  http::TestResponse ask(const std::string& request) {
    if (!client_ || client_->ended()) client_ = std::make_unique<http::TestClient>(server_->port());
    client_->send(request);
    return client_->response(/*head_only=*/request.starts_with("HEAD"));
  }
  // Something, so that a connection is there already, and what comes before the request.
  void prepare() {
    ask(get("/health"));
    if (GetParam().before.empty()) return;
    ask(GetParam().before);
    kept_bytes_ = metric("request_memory_bytes");
  }
  http::TestResponse ask_with_failure(const std::string& request, long index, bool& failed) {
    prepare();
    if (GetParam().connects) client_.reset();
    const FailOne fail(index);
    http::TestResponse response;
    if (GetParam().leaves) {
      client_->send(request);
      client_->read_past("\r\n\r\n");
      client_->reset();
    } else {
      response = ask(request);
    }
    if (!response.whole) client_.reset();
    // What a client leaves behind may fail, too.
    if (GetParam().leaves) {
      EXPECT_TRUE(http::eventually([this] { return engine_.num_requests() == 0; }));
    }
    failed = fail.failed();
    return response;
  }
  double metric(const std::string& name) {
    const std::string sample = "\nquire:" + name + "{engine=\"0\",model_name=\"\"} ";
    const std::string all = ask(get("/metrics")).body;
    const size_t found = all.find(sample);
    return found == std::string::npos ? -1 : std::stod(all.substr(found + sample.size()));
  }
  // Whether nothing of a request is left: neither its work nor a byte on the account.
  bool is_idle() {
    return metric("request_memory_bytes") == kept_bytes_ && metric("http_requests_active") == 0 &&
           metric("admission_queue_length") == 0;
  }
  // Without what differs from one time to the next.
  static std::string comparable(const std::string& body) {
    static const std::regex kChanging(R"("created":\d+|"call_[0-9a-f]+")");
    return std::regex_replace(body, kChanging, "");
  }

  std::unique_ptr<std::FILE, int (*)(std::FILE*)> nowhere_{std::fopen("/dev/null", "w"),
                                                           std::fclose};
  AccessLog log_{{.fd = fileno(nowhere_.get())}};
  // Its collector is not there, so that its thread does nothing after its first span.
  TraceExporter traces_{{.url = "http://127.0.0.1:1/v1/traces",
                         .delay = std::chrono::milliseconds(0),
                         .first_pause = std::chrono::hours(1),
                         .last_sends = std::chrono::milliseconds(0),
                         .warn = [](const std::string&) {}}};
  InstantEngine engine_{token_text(GetParam())};
  Tokenizer tokenizer_ = small_tokenizer();
  ChatTemplate chat_template_{"{% for m in messages %}{{ m.content }}{% endfor %}"};
  std::unique_ptr<http::Server> server_;
  PostGate gate_;
  std::unique_ptr<Service> service_;
  std::unique_ptr<http::TestClient> client_;
  double kept_bytes_ = 0;  // of what came before the request
};

TEST_P(LowMemoryService, ARequestEndsAndNothingElse) {
  const Case& tested = GetParam();
  prepare();
  http::TestResponse expected;
  if (!tested.leaves) {
    expected = ask(tested.request);
    ASSERT_TRUE(expected.whole);
  }
  long index = 0;
  for (bool failed = true; failed; ++index) {
    SCOPED_TRACE(testing::Message() << "allocation " << index);
    const http::TestResponse response = ask_with_failure(tested.request, index, failed);
    if (response.whole && response.status == expected.status &&
        response.body.find("\"error\"") == std::string::npos && tested.repeats) {
      EXPECT_EQ(comparable(response.body), comparable(expected.body));
    } else if (response.whole && response.status != expected.status) {
      EXPECT_GE(response.status, 500) << response.body;
    }
    ASSERT_TRUE(http::eventually([this] { return is_idle(); }));
    if (HasFailure()) return;
  }
  RecordProperty("allocations", static_cast<int>(index - 1));
  EXPECT_GT(index, 5);
  if (tested.leaves) return;
  prepare();
  const http::TestResponse after = ask(tested.request);
  EXPECT_EQ(after.status, expected.status);
  if (tested.repeats) {
    EXPECT_EQ(comparable(after.body), comparable(expected.body));
  }
}

INSTANTIATE_TEST_SUITE_P(Endpoints, LowMemoryService, testing::ValuesIn(cases()),
                         [](const auto& instance) { return instance.param.name; });

// "POST /v1/requests/x/events HTTP/1.1" -> whether it asks for a path of OpenAPI's, as
// "/v1/requests/{request_id}/events".
bool asks_for(const std::string& request, const std::string& documented) {
  const std::string path = request.substr(request.find(' ') + 1);
  static const std::regex kParameter(R"(\{\w+\})");
  return std::regex_match(path.substr(0, path.find(' ')),
                          std::regex(std::regex_replace(documented, kParameter, "[^/]+")));
}

TEST(LowMemoryCases, HaveEveryPathOfTheService) {
  for (const std::string& path : Service::documented_paths()) {
    EXPECT_TRUE(std::ranges::any_of(
        cases(), [&](const Case& tested) { return asks_for(tested.request, path); }))
        << path << " needs a case";
  }
}

}  // namespace
}  // namespace quire::server
