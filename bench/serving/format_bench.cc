// What it costs to turn one output of the engine into bytes for the client: an event of a stream
// with a few characters of new text, and with logprobs besides.
//
//   build/release/bench/format_bench
#include <benchmark/benchmark.h>

#include <memory>
#include <string>
#include <utility>

#include "parsers/output_parser.h"
#include "server/answer/response_format.h"

namespace quire::server {
namespace {

std::unique_ptr<ResponseFormatter> streaming_formatter(GenerationRequest request,
                                                       ReasoningFormat reasoning) {
  request.stream = true;
  FormatContext context;
  context.id = "chatcmpl-0123456789abcdef0123456789abcdef";
  context.created = 1700000000;
  context.model = "Qwen/Qwen3-0.6B";
  context.make_parser = [reasoning] {
    OutputParserConfig config;
    config.reasoning = reasoning;
    return make_output_parser(std::move(config));
  };
  return make_formatter(request, std::move(context));
}

RequestOutput one_token(std::string text) {
  RequestOutput output;
  CompletionOutput& choice = output.outputs.emplace_back();
  choice.text = std::move(text);
  choice.token_ids = {1234};
  return output;
}

void run(benchmark::State& state, const GenerationRequest& request, const RequestOutput& output,
         ReasoningFormat reasoning = ReasoningFormat::kNone) {
  const auto formatter = streaming_formatter(request, reasoning);
  formatter->begin();
  formatter->push(0, one_token("Well, "));  // past where reasoning could begin
  for (auto _ : state) benchmark::DoNotOptimize(formatter->push(0, output));
  state.SetItemsProcessed(state.iterations());
}

void chat_token(benchmark::State& state) {
  GenerationRequest request;
  request.kind = RequestKind::kChat;
  run(state, request, one_token(" token"));
}
BENCHMARK(chat_token);

void chat_token_with_reasoning_parser(benchmark::State& state) {
  GenerationRequest request;
  request.kind = RequestKind::kChat;
  run(state, request, one_token(" token"), ReasoningFormat::kQwen3);
}
BENCHMARK(chat_token_with_reasoning_parser);

void completion_token(benchmark::State& state) {
  GenerationRequest request;
  request.prompts.emplace_back("prompt");
  run(state, request, one_token(" token"));
}
BENCHMARK(completion_token);

void chat_token_with_logprobs(benchmark::State& state) {
  GenerationRequest request;
  request.kind = RequestKind::kChat;
  request.logprobs = true;
  request.sampling.logprobs = 5;
  RequestOutput output = one_token(" token");
  output.outputs[0].logprobs.emplace_back();
  for (int i = 0; i < 6; ++i) {
    output.outputs[0].logprobs[0].push_back({1234 + i, -0.5F, i + 1, " token"});
  }
  run(state, request, output);
}
BENCHMARK(chat_token_with_logprobs);

}  // namespace
}  // namespace quire::server

BENCHMARK_MAIN();
