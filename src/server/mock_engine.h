#pragma once
// An engine that computes nothing: each step gives every request one token of the same text. For
// tests and measurements of the front end.
//
// Thread safety: as EnginePort.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/engine_port.h"

namespace quire::server {

class MockEngine : public EnginePort {
 public:
  enum class Pace {
    kFree,      // as fast as it can: what is not fetched in time comes as one output
    kLockstep,  // a request gets its next token when the last was fetched: one an output
  };
  // `token_text` is the text of every token. Steps begin `step_s` after each other, or as soon as
  // they can.
  explicit MockEngine(std::string token_text = " word", Pace pace = Pace::kFree, double step_s = 0);
  ~MockEngine() override;
  MockEngine(const MockEngine&) = delete;
  MockEngine& operator=(const MockEngine&) = delete;

  std::unique_ptr<OutputSource> submit(std::vector<int32_t> prompt, const SamplingParams& params,
                                       RequestOptions options,
                                       std::function<void()> on_ready) override;
  std::shared_ptr<const void> compile(const StructuredOutput& output) override;
  std::optional<std::shared_ptr<const void>> compile_by(
      const StructuredOutput& output, std::chrono::steady_clock::time_point end) override;
  std::optional<std::shared_ptr<const void>> find_compiled(const StructuredOutput& output) override;
  void load_lora(const std::string& name, const std::string& path, bool replace,
                 const LoraPathCheck& check) override;
  void unload_lora(const std::string& name) override;
  std::optional<LoraAdapterInfo> find_lora_info(const std::string& name) const override;
  HeldLora hold_lora(const std::string& name) override;
  std::optional<HeldLora> find_lora(const std::string& name) override;
  EngineStats stats() const override;

  // Adapters whose weights requests hold, counted once for each request.
  int64_t num_held_loras() const;
  // Stops the engine, or lets it go on.
  void hold(bool held);
  // While true, compiling does not return, except for the regular expression "known", and nothing
  // but "short" is compiled before an end.
  void hold_compiling(bool held);
  // The texts of what was compiled, in order.
  std::vector<std::string> compiled() const;
  // While true, reading adapters does not return, except for one of the folder "known".
  void hold_adapters(bool held);
  // From now on the engine has failed: sources throw EngineFailure.
  void fail();
  // In the next step each request fails with this sentence; later ones do not.
  void fail_requests(const std::string& error, bool out_of_memory = false);

 private:
  struct Stream;
  class Source;
  void run();
  void step();

  const std::string token_text_;
  const Pace pace_;
  const std::chrono::duration<double> step_s_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::shared_ptr<Stream>> streams_;
  EngineStats stats_;
  bool held_ = false;
  bool compiling_held_ = false;
  std::vector<std::string> compiled_;
  bool adapters_held_ = false;
  struct Adapter {
    std::string path;
    LoraPathCheck check;
  };
  HeldLora hold(const Adapter& adapter);     // with mutex_ held
  std::map<std::string, Adapter> adapters_;  // by name
  std::vector<std::weak_ptr<const std::string>> held_loras_;
  bool failed_ = false;
  bool closed_ = false;
  std::thread thread_;
};

// Locks: the engine's mutex is never held together with a stream's.
struct MockEngine::Stream {
  std::mutex mutex;
  RequestOutput pending;
  bool has_pending = false;
  bool failed = false;
  bool cancelled = false;
  bool finished = false;
  int64_t tokens_left = 0;
  size_t n = 1;
  HeldLora lora_weights;
  std::string error;
  bool out_of_memory = false;
  std::function<void()> on_ready;

  // Adds a token to each output, and says whether the reader had nothing before.
  bool advance(const std::string& token_text, Pace pace) {
    const std::lock_guard lock(mutex);
    if (has_pending && pace == Pace::kLockstep && !cancelled) return false;
    if (!has_pending) {
      pending.outputs.resize(n);
      for (size_t i = 0; i < n; ++i) pending.outputs[i].index = static_cast<int>(i);
    }
    const bool aborted = cancelled || !error.empty();
    finished = aborted || --tokens_left <= 0;
    for (CompletionOutput& output : pending.outputs) {
      if (!aborted) {
        output.text += token_text;
        output.token_ids.push_back(1);
      }
      if (finished) output.finish_reason = aborted ? FinishReason::kAbort : FinishReason::kLength;
    }
    pending.finished = finished;
    pending.error = error;
    pending.out_of_memory = out_of_memory;
    return !std::exchange(has_pending, true) || finished;
  }
};

class MockEngine::Source : public OutputSource {
 public:
  explicit Source(std::shared_ptr<Stream> stream) : stream_(std::move(stream)) {}
  ~Source() override { stop(); }

  std::optional<RequestOutput> try_next() override {
    const std::lock_guard lock(stream_->mutex);
    if (stream_->failed) throw EngineFailure("The mock engine was told to fail.");
    if (!std::exchange(stream_->has_pending, false)) return std::nullopt;
    return std::exchange(stream_->pending, {});
  }
  bool ended() const override {
    const std::lock_guard lock(stream_->mutex);
    return stream_->finished || stream_->failed;
  }
  void cancel() override { stop(); }

 private:
  void stop() {
    const std::lock_guard lock(stream_->mutex);
    stream_->cancelled = true;
  }
  std::shared_ptr<Stream> stream_;
};

inline MockEngine::MockEngine(std::string token_text, Pace pace, double step_s)
    : token_text_(std::move(token_text)),
      pace_(pace),
      step_s_(step_s),
      thread_([this] { run(); }) {}

inline MockEngine::~MockEngine() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

inline std::unique_ptr<OutputSource> MockEngine::submit(std::vector<int32_t> prompt,
                                                        const SamplingParams& params,
                                                        RequestOptions options,
                                                        std::function<void()> on_ready) {
  auto stream = std::make_shared<Stream>();
  stream->tokens_left = params.max_tokens.value_or(16);
  stream->n = static_cast<size_t>(params.n);
  stream->on_ready = std::move(on_ready);
  stream->lora_weights = std::move(options.lora_weights);
  stream->pending.prompt_token_ids = std::move(prompt);
  {
    const std::lock_guard lock(mutex_);
    if (failed_) throw EngineFailure("The mock engine was told to fail.");
    streams_.push_back(stream);
  }
  wake_.notify_all();
  return std::make_unique<Source>(std::move(stream));
}

inline std::shared_ptr<const void> MockEngine::compile(const StructuredOutput& output) {
  std::unique_lock lock(mutex_);
  wake_.wait(lock, [this] { return !compiling_held_; });
  compiled_.push_back(output.text);
  return nullptr;
}

inline std::optional<std::shared_ptr<const void>> MockEngine::compile_by(
    const StructuredOutput& output, std::chrono::steady_clock::time_point /*end*/) {
  const std::lock_guard lock(mutex_);
  if (compiling_held_ && output.text != "short") return std::nullopt;
  compiled_.push_back(output.text);
  return nullptr;
}

inline std::optional<std::shared_ptr<const void>> MockEngine::find_compiled(
    const StructuredOutput& output) {
  const std::lock_guard lock(mutex_);
  if (compiling_held_ && output.text != "known") return std::nullopt;
  return nullptr;
}

inline std::vector<std::string> MockEngine::compiled() const {
  const std::lock_guard lock(mutex_);
  return compiled_;
}

inline void MockEngine::hold_compiling(bool held) {
  {
    const std::lock_guard lock(mutex_);
    compiling_held_ = held;
  }
  wake_.notify_all();
}

inline void MockEngine::load_lora(const std::string& name, const std::string& path, bool replace,
                                  const LoraPathCheck& check) {
  std::unique_lock lock(mutex_);
  wake_.wait(lock, [&] { return !adapters_held_ || path.ends_with("known"); });
  if (!replace && adapters_.contains(name)) throw Error("There is one already.");
  if (check) check(path);
  adapters_[name] = {path, check};
}

inline void MockEngine::unload_lora(const std::string& name) {
  const std::lock_guard lock(mutex_);
  if (adapters_.erase(name) == 0) throw Error("There is none.");
}

inline std::optional<LoraAdapterInfo> MockEngine::find_lora_info(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto found = adapters_.find(name);
  if (found == adapters_.end()) return std::nullopt;
  LoraAdapterInfo info;
  info.name = name;
  info.path = found->second.path;
  return info;
}

// Each request gets an object of its own for its adapter's weights, so that they can be counted.
inline HeldLora MockEngine::hold(const Adapter& adapter) {
  auto folder = std::make_shared<std::string>(adapter.path);
  held_loras_.emplace_back(folder);
  return {std::move(folder), nullptr};
}

inline HeldLora MockEngine::hold_lora(const std::string& name) {
  std::unique_lock lock(mutex_);
  wake_.wait(lock, [this] { return !adapters_held_; });
  if (!adapters_.contains(name)) throw Error("There is none.");
  if (adapters_[name].check) adapters_[name].check(adapters_[name].path);
  return hold(adapters_[name]);
}

inline std::optional<HeldLora> MockEngine::find_lora(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto found = adapters_.find(name);
  if (found == adapters_.end()) throw Error("There is none.");
  if (adapters_held_ && !found->second.path.ends_with("known")) return std::nullopt;
  return hold(found->second);
}

inline int64_t MockEngine::num_held_loras() const {
  const std::lock_guard lock(mutex_);
  return std::ranges::count_if(held_loras_, [](const auto& held) { return !held.expired(); });
}

inline void MockEngine::hold_adapters(bool held) {
  {
    const std::lock_guard lock(mutex_);
    adapters_held_ = held;
  }
  wake_.notify_all();
}

inline EngineStats MockEngine::stats() const {
  const std::lock_guard lock(mutex_);
  EngineStats stats = stats_;
  stats.num_running = static_cast<int64_t>(streams_.size());
  return stats;
}

inline void MockEngine::hold(bool held) {
  {
    const std::lock_guard lock(mutex_);
    held_ = held;
  }
  wake_.notify_all();
}

inline void MockEngine::fail() {
  std::vector<std::shared_ptr<Stream>> streams;
  {
    const std::lock_guard lock(mutex_);
    failed_ = true;
    streams.swap(streams_);
  }
  for (const auto& stream : streams) {
    {
      const std::lock_guard lock(stream->mutex);
      stream->failed = true;
    }
    stream->on_ready();
  }
}

inline void MockEngine::fail_requests(const std::string& error, bool out_of_memory) {
  const std::lock_guard lock(mutex_);
  for (const auto& stream : streams_) {
    const std::lock_guard inner(stream->mutex);
    stream->error = error;
    stream->out_of_memory = out_of_memory;
  }
}

inline void MockEngine::run() {
  auto next_step = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  while (true) {
    if (streams_.empty()) next_step = std::chrono::steady_clock::now();
    wake_.wait(lock, [this] { return closed_ || (!held_ && !streams_.empty()); });
    if (closed_) return;
    lock.unlock();
    step();
    if (pace_ == Pace::kLockstep) std::this_thread::yield();  // to who fetches
    next_step += std::chrono::duration_cast<std::chrono::nanoseconds>(step_s_);
    std::this_thread::sleep_until(next_step);
    lock.lock();
  }
}

inline void MockEngine::step() {
  std::vector<std::shared_ptr<Stream>> streams;
  {
    const std::lock_guard lock(mutex_);
    streams = streams_;
  }
  int64_t num_tokens = 0;
  for (const auto& stream : streams) {
    num_tokens += static_cast<int64_t>(stream->n);
    if (stream->advance(token_text_, pace_)) stream->on_ready();
  }
  const std::lock_guard lock(mutex_);
  std::erase_if(streams_, [](const auto& stream) { return stream->finished; });
  stats_.generation_tokens += num_tokens;
  ++stats_.num_steps;
}

}  // namespace quire::server
