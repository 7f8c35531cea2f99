// Each allocation of a request fails once, in turn, over a whole server on an engine that computes
// nothing: the request ends, with what it would have got or with an error, the process lives, and
// the next request finds everything as it was.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <memory>
#include <optional>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "http/server.h"
#include "http/test_client.h"
#include "low_memory/failing_allocator.h"
#include "server/api/api_test_util.h"
#include "server/post_gate.h"
#include "server/service.h"

namespace quire::server {
namespace {

using low_memory::FailOne;

// Answers within submit(), so that the same request always makes the same allocations.
class InstantEngine : public EnginePort {
 public:
  std::unique_ptr<OutputSource> submit(std::vector<int32_t> prompt, const SamplingParams& params,
                                       RequestOptions, std::function<void()> on_ready) override {
    auto source = std::make_unique<Source>(std::move(prompt), params);
    on_ready();
    return source;
  }
  EngineStats stats() const override { return {}; }
  // Another thread compiles it.
  std::optional<std::shared_ptr<const void>> find_compiled(const StructuredOutput&) override {
    return std::nullopt;
  }
  void load_lora(const std::string&, const std::string&, bool, const LoraPathCheck&) override {
    has_adapter_ = true;
  }
  void unload_lora(const std::string&) override { has_adapter_ = false; }
  std::optional<LoraAdapterInfo> find_lora_info(const std::string& name) const override {
    if (!has_adapter_) return std::nullopt;
    LoraAdapterInfo info;
    info.name = name;
    info.path = "/";
    return info;
  }

 private:
  class Source : public OutputSource {
   public:
    Source(std::vector<int32_t> prompt, const SamplingParams& params)
        : prompt_(std::move(prompt)), params_(params), is_call_(forces_call(params)) {}

    std::optional<RequestOutput> try_next() override {
      if (ended_) return std::nullopt;
      RequestOutput output;
      if (params_.prompt_logprobs && !prompt_.empty()) {
        output.prompt_logprobs.assign(prompt_.size(), position());
        output.prompt_logprobs.front().clear();
      }
      output.prompt_token_ids = std::exchange(prompt_, {});
      // A call comes in two pieces.
      const int64_t num_pieces = is_call_ ? 2 : params_.max_tokens.value_or(16);
      const bool last = cancelled_ || ++num_given_ >= num_pieces;
      for (int i = 0; i < static_cast<int>(params_.n); ++i) {
        CompletionOutput& completion = output.outputs.emplace_back();
        completion.index = i;
        completion.text = is_call_ ? (last ? kCallEnd : kCallBegin) : "ab";
        completion.token_ids = {2};
        if (params_.logprobs) completion.logprobs = {position()};
        if (last) {
          completion.finish_reason = is_call_ ? FinishReason::kStop : FinishReason::kLength;
        }
      }
      output.finished = ended_ = last;
      return output;
    }
    bool ended() const override { return ended_; }
    void cancel() override { cancelled_ = true; }

   private:
    static constexpr const char* kCallBegin =
        "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\"";
    static constexpr const char* kCallEnd = ": 1}}\n</tool_call>";

    static bool forces_call(const SamplingParams& params) {
      const auto& output = params.structured_output;
      return output && output->kind != StructuredOutput::Kind::kJsonObject;
    }
    static PositionLogprobs position() {
      return {{.token_id = 2, .logprob = -0.5F, .rank = 1, .decoded_token = "ab"}};
    }

    std::vector<int32_t> prompt_;
    const SamplingParams params_;
    const bool is_call_;
    int64_t num_given_ = 0;
    bool cancelled_ = false;
    bool ended_ = false;
  };

  std::atomic<bool> has_adapter_ = false;
};

std::string get(const std::string& path) {
  return "GET " + path + " HTTP/1.1\r\nHost: x\r\nX-Request-Id: r\r\n\r\n";
}
std::string post(const std::string& path, const std::string& body) {
  return "POST " + path +
         " HTTP/1.1\r\nHost: x\r\nX-Request-Id: r\r\nContent-Type: application/json\r\n"
         "Content-Length: " +
         std::to_string(body.size()) + "\r\n\r\n" + body;
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
};

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
    return client_->response();
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
    const FailOne fail(index);
    http::TestResponse response = ask(request);
    if (!response.whole) client_.reset();
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
  InstantEngine engine_;
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
  const http::TestResponse expected = ask(tested.request);
  ASSERT_TRUE(expected.whole);
  // All of the first, where requests are taken in; what a large one repeats is tried here and
  // there.
  constexpr long kEach = 500;
  long index = 0;
  for (bool failed = true; failed; index += 1 + std::max(0L, index - kEach) / 50) {
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
  EXPECT_GT(index, 5);
  prepare();
  const http::TestResponse after = ask(tested.request);
  EXPECT_EQ(after.status, expected.status);
  if (tested.repeats) {
    EXPECT_EQ(comparable(after.body), comparable(expected.body));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Endpoints, LowMemoryService,
    testing::Values(
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
        Case{"long_completion",
             post("/v1/completions",
                  R"({"prompt": [0, 1], "n": 128, "max_tokens": 20, "logprobs": 1})")},
        Case{"refused", post("/v1/completions", R"({"prompt": 1, "max_tokens": -1})")},
        Case{"malformed", post("/v1/completions", R"({"prompt": )")},
        Case{"tokenize", post("/tokenize", R"({"prompt": "abab", "return_token_strs": true})")},
        Case{"tokenize_chat",
             post("/tokenize", R"({"messages": [{"role": "user", "content": "ab"}]})")},
        Case{"detokenize", post("/detokenize", R"({"tokens": [2, 0, 1]})")},
        Case{"large_body",
             post("/tokenize", R"({"prompt": ")" + std::string(20'000, 'a') + R"("})")},
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
        Case{"wrong_method", get("/v1/completions")}),
    [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace quire::server
