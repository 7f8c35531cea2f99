#include "quire/async_llm.h"

#include <fmt/format.h>

#include <condition_variable>
#include <exception>
#include <list>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/memory_reserve.h"
#include "engine/engine_core.h"
#include "quire/error.h"

namespace quire {
namespace {

// Memory in reserve for the engine's threads, for when the process has none left. A step of 512
// sequences takes less than a tenth of it.
constexpr size_t kReserveBlocks = 16;
constexpr size_t kReserveBlockBytes = 1 << 20;

template <typename T>
void append_to(std::vector<T>& target, std::vector<T>& source) {
  target.insert(target.end(), std::make_move_iterator(source.begin()),
                std::make_move_iterator(source.end()));
}

// Makes `newer`, of kind kDelta, continue `older`.
void merge_delta(RequestOutput& older, RequestOutput newer) {
  for (size_t i = 0; i < newer.outputs.size(); ++i) {
    CompletionOutput& into = older.outputs[i];
    CompletionOutput& from = newer.outputs[i];
    into.text += from.text;
    append_to(into.token_ids, from.token_ids);
    append_to(into.logprobs, from.logprobs);
    into.finish_reason = from.finish_reason;
    into.stop_reason = std::move(from.stop_reason);
    into.steered_to_end = from.steered_to_end;
  }
  older.num_cached_tokens = newer.num_cached_tokens;
  older.finished = newer.finished;
  older.error = std::move(newer.error);
  older.out_of_memory = newer.out_of_memory;
  older.metrics = newer.metrics;
}

}  // namespace

// State that the engine's thread and the reader share. Locks: `mutex` here is never held together
// with the engine's.
struct RequestStream::State {
  std::string request_id;
  bool delta = true;
  std::mutex mutex;
  std::condition_variable ready;
  std::optional<RequestOutput> pending;
  bool ended = false;  // nothing comes after `pending`
  std::exception_ptr error;
  std::function<void()>
      cancel;  // outlives nothing of the engine: it holds the engine's queue weakly
  std::function<void()> on_ready;

  void deliver(RequestOutput output) {
    bool news = false;
    {
      const std::lock_guard lock(mutex);
      ended = output.finished;
      news = !pending || ended;
      if (pending && delta) {
        merge_delta(*pending, std::move(output));
      } else {
        pending = std::move(output);
      }
    }
    ready.notify_all();
    if (news && on_ready) on_ready();
  }

  void fail(std::exception_ptr reason) {
    {
      const std::lock_guard lock(mutex);
      error = std::move(reason);
      ended = true;
    }
    ready.notify_all();
    if (on_ready) on_ready();
  }
};

RequestStream::RequestStream(std::shared_ptr<State> state) : state_(std::move(state)) {}
RequestStream::RequestStream(RequestStream&&) noexcept = default;
RequestStream& RequestStream::operator=(RequestStream&& other) noexcept {
  std::swap(state_, other.state_);
  return *this;
}
RequestStream::~RequestStream() {
  if (state_) cancel();
}

std::optional<RequestOutput> RequestStream::next() {
  std::unique_lock lock(state_->mutex);
  state_->ready.wait(lock, [this] { return state_->pending || state_->ended; });
  if (state_->pending) return std::exchange(state_->pending, std::nullopt);
  if (state_->error) std::rethrow_exception(state_->error);
  return std::nullopt;
}

std::optional<RequestOutput> RequestStream::try_next() {
  const std::lock_guard lock(state_->mutex);
  if (state_->pending) return std::exchange(state_->pending, std::nullopt);
  if (state_->error) std::rethrow_exception(state_->error);
  return std::nullopt;
}

bool RequestStream::ended() const {
  const std::lock_guard lock(state_->mutex);
  return state_->ended;
}

void RequestStream::cancel() {
  state_->cancel();
}
const std::string& RequestStream::request_id() const {
  return state_->request_id;
}

class AsyncLLM::Impl {
 public:
  explicit Impl(const EngineConfig& config)
      : reserve(kReserveBlocks, kReserveBlockBytes),
        mailbox(std::make_shared<Mailbox>()),
        core(config, &reserve, [box = mailbox] { box->note_failure(); }) {
    mailbox->stats = core.stats();
    try {
      thread = std::thread([this] { run(); });
    } catch (const std::system_error& error) {
      throw Error(fmt::format("The engine's thread cannot be started: {}.", error.what()));
    }
  }

  ~Impl() {
    {
      const std::lock_guard lock(mailbox->mutex);
      mailbox->closed = true;
    }
    mailbox->wake.notify_all();
    thread.join();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  RequestStream submit(Prompt prompt, SamplingParams params, RequestOptions options,
                       std::function<void()> on_ready);

  // Work that other threads leave for the engine's thread. A stream that holds it may outlive the
  // engine.
  struct Mailbox {
    std::mutex mutex;
    std::condition_variable wake;
    std::vector<std::pair<PreparedRequest, std::shared_ptr<RequestStream::State>>> added;
    std::list<std::string> cancelled;
    EngineStats stats;
    uint64_t next_id = 0;
    bool closed = false;
    bool rank_failed = false;
    std::exception_ptr error;  // the engine failed; nothing is taken any more
    std::function<void(const std::string&)> on_failure;

    void note_failure() {
      {
        const std::lock_guard lock(mutex);
        rank_failed = true;
      }
      wake.notify_all();
    }
  };

  MemoryReserve reserve;  // the ranks of `core` use it
  std::shared_ptr<Mailbox> mailbox;
  EngineCore core;

 private:
  void run();
  // Waits until there is something to do; false when the engine is to end.
  bool take_mail();
  void end_streams(const std::exception_ptr& error);
  // Ends this request, and no other, because there is no memory. `finished`: the engine has ended
  // it already.
  void fail_stream(RequestStream::State& stream, bool finished);
  void shed_newest_request();

  std::unordered_map<std::string, std::shared_ptr<RequestStream::State>> streams_;
  std::thread thread;
};

RequestStream AsyncLLM::Impl::submit(Prompt prompt, SamplingParams params, RequestOptions options,
                                     std::function<void()> on_ready) {
  auto state = std::make_shared<RequestStream::State>();
  state->on_ready = std::move(on_ready);
  state->delta = options.output_kind == OutputKind::kDelta;
  PreparedRequest request =
      core.prepare({}, std::move(prompt), std::move(params), std::move(options));
  {
    const std::lock_guard lock(mailbox->mutex);
    if (mailbox->error) std::rethrow_exception(mailbox->error);
    request.facts.id = std::to_string(mailbox->next_id++);
    state->request_id = request.facts.id;
    // The note is written now: destructors cancel, which must not need memory.
    state->cancel = [weak = std::weak_ptr(mailbox),
                     note = std::list<std::string>{request.facts.id}]() mutable {
      const auto box = weak.lock();
      if (!box) return;
      {
        const std::lock_guard inner(box->mutex);
        box->cancelled.splice(box->cancelled.end(), note);
      }
      box->wake.notify_all();
    };
    mailbox->added.emplace_back(std::move(request), state);
  }
  mailbox->wake.notify_all();
  return RequestStream(std::move(state));
}

bool AsyncLLM::Impl::take_mail() {
  std::unique_lock lock(mailbox->mutex);
  mailbox->stats = core.stats();
  mailbox->wake.wait(lock, [this] {
    return mailbox->closed || mailbox->rank_failed || !mailbox->added.empty() ||
           !mailbox->cancelled.empty() || !core.is_finished();
  });
  if (mailbox->closed) return false;
  if (mailbox->rank_failed) core.check_health();
  auto added = std::exchange(mailbox->added, {});
  auto cancelled = std::exchange(mailbox->cancelled, {});
  lock.unlock();
  for (auto& [request, stream] : added) {
    streams_.emplace(request.facts.id, stream);
    core.add(std::move(request));
  }
  for (const std::string& id : cancelled) core.abort(id);
  return true;
}

void AsyncLLM::Impl::end_streams(const std::exception_ptr& error) {
  std::vector<std::shared_ptr<RequestStream::State>> waiting;
  {
    const std::lock_guard lock(mailbox->mutex);
    mailbox->error = error;
    for (auto& [request, stream] : mailbox->added) waiting.push_back(stream);
    mailbox->added.clear();
  }
  for (auto& [id, stream] : streams_) waiting.push_back(stream);
  for (const auto& stream : waiting) stream->fail(error);
}

void AsyncLLM::Impl::fail_stream(RequestStream::State& stream, bool finished) {
  if (!finished) {
    streams_.erase(stream.request_id);
    core.abort(stream.request_id);
  }
  stream.fail(std::make_exception_ptr(std::bad_alloc()));
}

void AsyncLLM::Impl::shed_newest_request() {
  const std::optional<std::string> id = core.newest_request();
  if (!id) return;
  const std::shared_ptr<RequestStream::State> stream = streams_.at(*id);
  fail_stream(*stream, /*finished=*/false);
}

void AsyncLLM::Impl::run() {
  const MemoryReserve::User user(&reserve);
  try {
    while (take_mail()) {
      if (!reserve.refill()) shed_newest_request();
      for (RequestOutput& output : core.step()) {
        const auto it = streams_.find(output.request_id);
        if (it == streams_.end()) continue;  // it failed, and was aborted
        const std::shared_ptr<RequestStream::State> stream = it->second;
        const bool finished = output.finished;
        if (finished) streams_.erase(it);
        try {
          stream->deliver(std::move(output));
        } catch (const std::bad_alloc&) {
          fail_stream(*stream, finished);
        }
      }
    }
    end_streams(std::make_exception_ptr(EngineFailure("The engine was shut down.")));
  } catch (const std::exception& error) {
    end_streams(std::make_exception_ptr(EngineFailure(error.what())));
    const std::lock_guard lock(mailbox->mutex);
    if (mailbox->on_failure) mailbox->on_failure(error.what());
  }
}

AsyncLLM::AsyncLLM(EngineConfig config) : impl_(std::make_unique<Impl>(config)) {}
AsyncLLM::~AsyncLLM() = default;

RequestStream AsyncLLM::generate(Prompt prompt, SamplingParams params, RequestOptions options,
                                 std::function<void()> on_ready) {
  return impl_->submit(std::move(prompt), std::move(params), std::move(options),
                       std::move(on_ready));
}

RequestStream AsyncLLM::chat(const ChatInput& conversation, SamplingParams params,
                             RequestOptions options) {
  options.add_special_tokens = false;
  RenderedChat rendered = chat_template().render_marked(conversation);
  if (!config().parse_special_tokens) options.plain_text = std::move(rendered.from_messages);
  return impl_->submit(std::move(rendered.text), std::move(params), std::move(options), {});
}

std::shared_ptr<const void> AsyncLLM::compile(const StructuredOutput& output) {
  return impl_->core.compile(output);
}

std::shared_ptr<const void> AsyncLLM::compile_by(const StructuredOutput& output,
                                                 std::chrono::steady_clock::time_point end) {
  return impl_->core.compile_by(output, end);
}

std::shared_ptr<const void> AsyncLLM::find_compiled(const StructuredOutput& output) {
  return impl_->core.find_compiled(output);
}

void AsyncLLM::load_lora(const std::string& name, const std::string& path, bool replace,
                         LoraPathCheck check) {
  impl_->core.loras().load(name, path, replace, std::move(check));
}
void AsyncLLM::unload_lora(const std::string& name) {
  impl_->core.loras().unload(name);
}
std::vector<LoraAdapterInfo> AsyncLLM::loras() const {
  return impl_->core.loras().list();
}
std::optional<LoraAdapterInfo> AsyncLLM::find_lora_info(const std::string& name) const {
  return impl_->core.loras().info(name);
}
HeldLora AsyncLLM::hold_lora(const std::string& name) {
  return impl_->core.loras().hold(name);
}
HeldLora AsyncLLM::find_lora(const std::string& name) {
  return impl_->core.loras().find(name);
}

void AsyncLLM::on_failure(std::function<void(const std::string&)> callback) {
  const std::lock_guard lock(impl_->mailbox->mutex);
  impl_->mailbox->on_failure = std::move(callback);
  if (!impl_->mailbox->on_failure || !impl_->mailbox->error) return;
  try {
    std::rethrow_exception(impl_->mailbox->error);
  } catch (const std::exception& error) {
    impl_->mailbox->on_failure(error.what());
  }
}

EngineStats AsyncLLM::stats() const {
  const std::lock_guard lock(impl_->mailbox->mutex);
  EngineStats stats = impl_->mailbox->stats;
  for (const auto& [request, stream] : impl_->mailbox->added)
    stats.num_waiting += request.facts.params.n;
  stats.stages = impl_->core.stage_stats();
  return stats;
}

int64_t AsyncLLM::vocab_size() const {
  return impl_->core.vocab_size();
}
const EngineConfig& AsyncLLM::config() const {
  return impl_->core.config();
}
const MemoryPlan& AsyncLLM::memory_plan() const {
  return impl_->core.memory_plan();
}
int64_t AsyncLLM::max_model_len() const {
  return *impl_->core.config().max_model_len;
}
SamplingParams AsyncLLM::default_sampling_params() const {
  return impl_->core.default_sampling_params();
}
const Tokenizer& AsyncLLM::tokenizer() const {
  return impl_->core.tokenizer();
}
const ChatTemplate& AsyncLLM::chat_template() const {
  return impl_->core.chat_template();
}

}  // namespace quire
