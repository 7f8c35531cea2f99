#pragma once
// The engine with its loop in the caller's hands: add requests, call step() until is_finished().
//
//   quire::LLMEngine engine({.model = "models/lexicon"});
//   engine.add_request("a", "define apple", {.temperature = 0, .max_tokens = 32});
//   while (!engine.is_finished())
//     for (const quire::RequestOutput& output : engine.step()) ...
//
// Thread safety: one thread at a time; load_lora, unload_lora, loras and hold_lora may be called
// from any thread. The engine computes on threads of its own; results do not depend on how many.
// AsyncLLM (quire/async_llm.h) is the engine for several threads, LLM (quire/llm.h) the one for a
// batch.
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "quire/chat_template.h"
#include "quire/engine_config.h"
#include "quire/engine_limits.h"
#include "quire/error.h"
#include "quire/lora_serving.h"
#include "quire/plan.h"
#include "quire/request_output.h"
#include "quire/sampling_params.h"
#include "quire/speculative_config.h"
#include "quire/tokenizer.h"

namespace quire {

// Text in UTF-8, or token ids. Text is encoded with the tokenizer's special tokens added (a BOS,
// where the model has one).
using Prompt = std::variant<std::string, std::vector<int32_t>>;

struct LoraWeights;
// The weights of an adapter, which stay in memory while this lives.
using HeldLora = std::shared_ptr<const LoraWeights>;
// Called with an adapter's folder each time before it is read. Its exceptions reach the caller who
// needed the adapter.
using LoraPathCheck = std::function<void(const std::string& path)>;

struct RequestOptions {
  OutputKind output_kind = OutputKind::kCumulative;
  // Requests share cached prefixes only with those of the same salt.
  std::string cache_salt{};
  // Whether the tokenizer's special tokens are added to a prompt that is text. A rendered chat
  // already has its own, so false for it.
  bool add_special_tokens = true;
  // Whose request it is. Clients share the engine by weight, in hundredths, 1 to kMaxClientWeight.
  uint64_t client = 0;
  int32_t client_weight = kDefaultClientWeight;
  // Order among the client's requests: lower goes first; equal ones in order of arrival.
  int64_t priority = 0;
  // Where the prompt is text: the spans in which no special token is recognised, in order and
  // without touching (RenderedChat::from_messages).
  std::vector<TextSpan> plain_text{};
  // The name of a loaded adapter; empty: the base model. The request keeps the weights that the
  // name means when the request is added, whatever is loaded or unloaded later.
  std::string lora{};
  // The weights that hold_lora() returned for `lora`; the request uses these even if the name means
  // others by now. Null: those that the name means when the request is added.
  HeldLora lora_weights{};
  // In place of `lora` and `lora_weights`: an adapter and its folder. If none of its name is
  // loaded, it is loaded first, on the thread that adds the request, and it stays. Error where the
  // name stands for another folder.
  std::optional<LoraRequest> lora_request{};
};

// What became of drafts since the engine started. A draft is one or more guessed tokens of a
// sequence that one step verifies.
struct SpeculativeStats {
  int64_t num_drafts = 0;
  int64_t num_draft_tokens = 0;
  int64_t num_accepted_tokens = 0;  // of these, kept
  std::array<int64_t, kMaxSpeculativeTokens> num_accepted_tokens_per_pos{};

  // Mean number of tokens that a draft brought: those kept, and the one sampled after them. 1 or
  // more; 0 without drafts.
  double mean_acceptance_length() const {
    if (num_drafts == 0) return 0;
    return 1 + static_cast<double>(num_accepted_tokens) / static_cast<double>(num_drafts);
  }
};

// One stage of a pipeline, since the engine started. In another process: as of a second ago.
struct StageStats {
  int64_t num_steps = 0;
  double busy_s = 0;  // time of its first rank without that in which it waited for other stages
};

// A snapshot. Token counts are since the engine started.
struct EngineStats {
  int64_t num_running = 0;
  int64_t num_waiting = 0;
  int64_t num_preemptions = 0;
  int64_t num_kv_blocks = 0;         // in all: what memory allowed
  double kv_cache_usage = 0;         // share of KV blocks held by sequences, 0 to 1
  int64_t prefix_cache_queries = 0;  // prompt tokens looked up
  int64_t prefix_cache_hits = 0;     // of these, found
  int64_t prompt_tokens = 0;         // computed in prefill; cached ones are not counted
  int64_t generation_tokens = 0;
  int64_t num_steps = 0;
  double prefill_s = 0;  // time of steps that held prompt tokens
  double decode_s = 0;   // time of the others
  SpeculativeStats speculative{};
  double gpu_s = 0;  // time in which the GPU (of several, the first) worked on steps; 0 on the CPU
  LoraStats lora{};
  std::vector<StageStats> stages{};  // in their order; empty where there is one
  int64_t node_bytes_sent = 0;       // by this process to other nodes (ClusterOptions)
};

class LLMEngine {
 public:
  // Loads the model. Throws Error: no such model, unsupported or damaged files, not enough memory,
  // a setting out of range.
  explicit LLMEngine(EngineConfig config);
  ~LLMEngine();
  LLMEngine(LLMEngine&&) noexcept;
  LLMEngine& operator=(LLMEngine&&) noexcept;

  // Throws Error if the request cannot be served: parameters out of range, an empty prompt, a token
  // id outside the vocabulary, a prompt of max_model_len tokens or more, invalid UTF-8, an id in
  // use, an adapter (RequestOptions::lora) that is not loaded. Also for a constraint
  // (SamplingParams::structured_output), compiled here, that does not compile or whose shortest
  // answer does not fit the limits on tokens. The engine and its other requests are not affected.
  void add_request(std::string request_id, Prompt prompt, SamplingParams params,
                   RequestOptions options = {});

  // Ends a request; unknown ids are ignored. Its last output, with finish_reason kAbort, comes from
  // the next step().
  void abort(const std::string& request_id);

  // One step: schedule, run, process. Returns the outputs of the requests that have something new,
  // in the order in which requests were added. With async_scheduling a step's outputs may come one
  // call later; with pipeline stages as many calls later as there are stages.
  std::vector<RequestOutput> step();

  // Adapters, where LoraOptions::enabled is set. A call that fails affects no request and no other
  // adapter.
  //
  // Reads the adapter in the folder `path` and gives it a name. With `replace` the name may be in
  // use: requests that are added from then on get the new adapter. Throws Error for a name that is
  // in use, empty or longer than 256 bytes, for a missing folder, and for an adapter that is
  // damaged, made for another base, of a rank above max_lora_rank, or of a kind that is not served.
  void load_lora(const std::string& name, const std::string& path, bool replace = false);
  // Requests that were added keep the adapter. Its memory is freed when the last of them ends.
  // Throws Error for a name that is not loaded.
  void unload_lora(const std::string& name);
  // Sorted by name.
  std::vector<LoraAdapterInfo> loras() const;
  // Reads the weights of a loaded adapter on the calling thread, unless they are in host memory.
  // add_request() does the same, but not for a request that has what this returns
  // (RequestOptions::lora_weights). So a thread that must not wait can leave the work to another
  // one. Throws Error for a name that is not loaded, and where the folder cannot be read any more.
  HeldLora hold_lora(const std::string& name);

  // No request is unfinished and no output is pending.
  bool is_finished() const;

  EngineStats stats() const;
  const EngineConfig& config() const;     // with every default filled in
  const MemoryPlan& memory_plan() const;  // what was taken, and where
  int64_t max_model_len() const;
  int64_t vocab_size() const;

  // From generation_config.json, like vLLM. Fields that the file lacks have SamplingParams'
  // defaults.
  SamplingParams default_sampling_params() const;
  // Throws Error if the folder has no tokenizer or skip_tokenizer_init is set.
  const Tokenizer& tokenizer() const;
  // Throws Error if the folder has no chat template.
  const ChatTemplate& chat_template() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire
