// How fast the tokenizer loads, encodes and decodes; bytes_per_second is of text.
//
//   QUIRE_BENCH_TOKENIZER  a model folder (default: models/lexicon)
//   QUIRE_BENCH_TEXT       a UTF-8 text file (default: LICENSE, which is short: its words are soon
//                          all in the cache; give a few megabytes of prose for a fair figure)
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "quire/tokenizer.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

fs::path path_from(const char* variable, std::string_view fallback) {
  if (const char* value = std::getenv(variable)) return value;
  return fs::path(__FILE__).parent_path().parent_path().parent_path() / fallback;
}

fs::path tokenizer_folder() {
  return path_from("QUIRE_BENCH_TOKENIZER", "models/lexicon");
}

std::string text() {
  std::ifstream file(path_from("QUIRE_BENCH_TEXT", "LICENSE"), std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void set_bytes(benchmark::State& state, std::size_t bytes) {
  state.SetBytesProcessed(static_cast<std::int64_t>(bytes) * state.iterations());
}

void load(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(Tokenizer::from_folder(tokenizer_folder()));
}
BENCHMARK(load)->Unit(benchmark::kMillisecond);

void encode(benchmark::State& state) {
  const Tokenizer tokenizer = Tokenizer::from_folder(tokenizer_folder());
  const std::string input = text();
  for (auto _ : state) benchmark::DoNotOptimize(tokenizer.encode(input));
  set_bytes(state, input.size());
}
BENCHMARK(encode)->Unit(benchmark::kMillisecond);

// One word of a million bytes: what a hostile prompt looks like.
void encode_long_run(benchmark::State& state) {
  const Tokenizer tokenizer = Tokenizer::from_folder(tokenizer_folder());
  const std::string input(1'000'000, 'a');
  for (auto _ : state) benchmark::DoNotOptimize(tokenizer.encode(input));
  set_bytes(state, input.size());
}
BENCHMARK(encode_long_run)->Unit(benchmark::kMillisecond);

void decode(benchmark::State& state) {
  const Tokenizer tokenizer = Tokenizer::from_folder(tokenizer_folder());
  const std::string input = text();
  const auto ids = tokenizer.encode(input);
  for (auto _ : state) benchmark::DoNotOptimize(tokenizer.decode(ids));
  set_bytes(state, input.size());
}
BENCHMARK(decode)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace quire

BENCHMARK_MAIN();
