#pragma once
// The engine itself: requests in, one step at a time, outputs back. LLMEngine is its public face,
// AsyncLLM drives it from a thread.
//
// A step is one sentence: schedule, run, process. With async scheduling one step is in flight: the
// next step is scheduled and handed to the workers before the engine waits for the results of the
// one that runs. With pipeline stages more steps are in flight (engine_core_pipeline.cc).
// Thread safety: prepare(), compile(), loras() and the accessors of what never changes from any
// thread; the rest from one thread at a time.
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/memory_reserve.h"
#include "engine/answer_compiler.h"
#include "engine/answer_masks.h"
#include "engine/engine_setup.h"
#include "engine/forced_drafts.h"
#include "engine/lora_store.h"
#include "engine/output_processor.h"
#include "engine/prompt_pace.h"
#include "quire/llm_engine.h"
#include "request/logits_processors.h"
#include "request/request.h"
#include "runner/executor.h"
#include "scheduler/scheduler.h"
#include "speculative/speculator.h"

namespace quire {

// A request that passed every check. add() fills in the rest of `facts`.
struct PreparedRequest {
  Request facts;
  LogitsProcessorRegistry::Processors logits_processors;
  AnswerLanguagePtr answer_language;  // null: the request is not constrained
  Clock::time_point arrival;
};

class EngineCore {
 public:
  // `memory_reserve`: for the threads of its ranks; must outlive the engine, and may be null.
  // `on_failure` is called when a rank has failed, from any thread; check_health() then throws the
  // reason.
  explicit EngineCore(const EngineConfig& config, MemoryReserve* memory_reserve = nullptr,
                      std::function<void()> on_failure = {});

  // Compiles a constraint on the calling thread, unless it is compiled already. It stays known
  // while somebody holds the result. Throws Error.
  AnswerLanguagePtr compile(const StructuredOutput& output) const;
  // Null where it would take beyond `end`.
  AnswerLanguagePtr compile_by(const StructuredOutput& output, Clock::time_point end) const;
  AnswerLanguagePtr find_compiled(const StructuredOutput& output) const;
  // Checks a request, compiles its constraint and encodes its prompt. Throws Error if it cannot be
  // served.
  PreparedRequest prepare(std::string request_id, Prompt prompt, SamplingParams params,
                          RequestOptions options);
  LoraStore& loras() { return *loras_; }
  // Throws Error if the id is in use.
  void add(PreparedRequest prepared);
  // Unknown ids are ignored.
  void abort(const std::string& request_id);
  std::vector<RequestOutput> step();
  bool is_finished() const;
  // Throws Error if a rank has failed, even while no step runs.
  void check_health() { executor_->check_health(); }
  // The id of the newest unfinished request; nothing if there is none.
  std::optional<std::string> newest_request() const;
  EngineStats stats() const;
  // Of these the stages', which reports of other nodes change between steps. From any thread.
  std::vector<StageStats> stage_stats() const;

  const EngineConfig& config() const { return setup_.config; }
  const MemoryPlan& memory_plan() const { return setup_.plan; }
  int64_t vocab_size() const { return setup_.model.vocab_size; }
  SamplingParams default_sampling_params() const;
  const Tokenizer& tokenizer() const;
  const ChatTemplate& chat_template() const;

 private:
  // A step that was handed to the workers and whose result was not taken yet.
  struct InFlight {
    bool has_prefill = false;
    int64_t num_tokens = 0;
    int64_t num_prompt_tokens = 0;
    int64_t num_scored_tokens = 0;                      // of these, with log-probabilities
    double expected_s = 0;                              // of a step with prompts
    std::unordered_map<SequenceId, size_t> num_drafts;  // of sequences with the speculator's
    std::unordered_set<SequenceId> forced;              // sequences whose drafts are forced text
  };
  // Which output of which request a sequence computes.
  struct SequenceOwner {
    RequestState* request = nullptr;
    size_t index = 0;  // within n
  };

  // Starts the ranks, which load the weights, and reads the tokenizer meanwhile.
  void load(MemoryReserve* memory_reserve);
  bool schedule();
  // Gives the scheduler drafts: forced text, where a constraint allows only one continuation, else
  // the speculator's for the sequences whose newest tokens are known.
  void propose();
  // The first of these. Returns the sequences that got some.
  std::unordered_set<SequenceId> propose_forced();
  // The texts that it proposes. Where memory is short there are fewer; the memory reserve is not
  // used for them.
  std::vector<std::pair<SequenceId, std::vector<int32_t>>> forced_texts();
  // Calls work() if there is a speculator. If that runs out of memory, the speculator forgets all
  // texts: for drafts neither a request ends nor the memory reserve is used up.
  template <typename Work>
  void speculate(const Work& work);
  // Of the model's pipeline.
  size_t num_stages() const { return static_cast<size_t>(setup_.config.pipeline_parallel_size); }
  // The number of steps in flight, with the newest one, when the oldest is waited for.
  size_t max_steps_in_flight() const;
  // The share of EngineConfig::target_step_s that a step of a stage may take; and the number of
  // sequences that decode in such a step.
  double target_step_s() const;
  int64_t num_decoding_in_step() const;
  // Whether the step in flight takes so long that the next one should be scheduled after it.
  bool awaits_long_step() const;
  // Whether drafts are to follow tokens that the oldest step in flight computes.
  bool awaits_drafts() const;
  void process(StepOutput output);
  // Takes a step's result for a sequence.
  void take_update(SequenceUpdate& update, const InFlight& step, Clock::time_point now);
  // What the constraint on an answer says of an update. Removes the update's tokens behind the
  // answer's end.
  AnswerProgress answer_progress(const SequenceOwner& owner, SequenceUpdate& update);
  // Of a step that failed, or that was scheduled before that was known.
  void take_void(StepOutput output);
  // Ends the request of a failed step that came last. The others are computed anew: a request of a
  // new kind may need memory that those before it do not.
  void shed_newest(const StepOutput& failed);
  // Ends a request whose next token could not be chosen.
  void fail_without_logits(RequestState& request);
  void account(const InFlight& step, const StepOutput& output);
  // Learns from the result of a sequence that had drafts, or whose answer is constrained.
  void learn_drafts(const SequenceUpdate& update, size_t num_drafts, bool ends);
  void learn_forced(const SequenceUpdate& update, bool had_forced, bool ends);
  void forget_drafts(SequenceId id);
  // Learns the cost of drafts from the time that a step took.
  void learn_drafting(const InFlight& step, const StepOutput& output, double elapsed);
  // `seconds`: since the result of the step before.
  void learn_outcome(const InFlight& step, const StepOutput& output, double seconds);
  std::vector<RequestOutput> collect_outputs();
  void check_params(const SamplingParams& params) const;
  void check_prompt(const std::vector<int32_t>& token_ids) const;
  // Whether the shortest answer fits the limits on tokens.
  void check_room(const Request& facts, const AnswerLanguage& language) const;
  static std::unique_ptr<LoraStore> make_lora_store(const EngineSetup& setup);
  // Loads what RequestOptions::lora_request names, and gives `options` its name and weights.
  void take_lora_request(RequestOptions& options);
  // Gives a request the adapter `name`.
  void set_lora(Request& facts, const std::string& name, LoraWeightsPtr weights);
  // Tells other nodes which adapters no later step has.
  void tell_forgotten_loras();
  LoraStats lora_stats(const SchedulerStats& scheduler) const;
  uint64_t resolve_seed(const Request& facts) const;

  EngineSetup setup_;
  std::unique_ptr<LoraStore> loras_;
  std::optional<Tokenizer> tokenizer_;
  std::optional<ChatTemplate> chat_template_;
  std::shared_ptr<LogitsProcessorRegistry> logits_processors_;
  std::unique_ptr<AnswerCompiler> answer_compiler_;
  std::shared_ptr<AnswerMasks> answer_masks_;
  Scheduler scheduler_;
  PromptPace prompt_pace_;
  std::optional<Speculator> speculator_;       // none: no speculation
  std::optional<ForcedDrafts> forced_drafts_;  // none: forced text takes a step a token
  std::unique_ptr<Executor> executor_;
  std::deque<InFlight> in_flight_;
  bool idle_ = true;               // no request since the last step: the time is no request's
  Clock::time_point last_result_;  // when the last step's result came
  std::optional<Clock::time_point> last_output_;         // the same; none: nothing ran meanwhile
  std::vector<std::unique_ptr<RequestState>> requests_;  // in order of arrival
  std::unordered_map<std::string, RequestState*> by_id_;
  std::unordered_map<SequenceId, SequenceOwner> owners_;
  SequenceId next_sequence_id_ = 1;
  // For each adapter, by name and number: how many unfinished requests use it.
  std::map<std::pair<std::string, uint64_t>, int64_t> lora_requests_;
  uint64_t num_requests_ = 0;
  EngineStats counters_;
};

}  // namespace quire
