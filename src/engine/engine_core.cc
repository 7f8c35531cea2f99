#include "engine/engine_core.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"
#include "engine/draft_tokenizer.h"
#include "engine/text_loading.h"
#include "quire/engine_limits.h"
#include "quire/error.h"
#include "quire/model_text.h"
#include "runner/thread_executor.h"

namespace quire {
namespace {

std::optional<Tokenizer> tokenizer_of(const EngineSetup& setup) {
  if (setup.config.skip_tokenizer_init || !has_tokenizer(setup.folder)) return std::nullopt;
  Tokenizer tokenizer = load_tokenizer(setup.folder);
  if (const auto& draft = setup.executor.runner.draft; draft && !draft->model.eagle) {
    check_draft_tokenizer(tokenizer, setup.executor.runner.draft->folder);
  }
  return tokenizer;
}

std::optional<ChatTemplate> chat_template_of(const EngineSetup& setup) {
  if (setup.config.skip_tokenizer_init || !has_chat_template(setup.folder)) return std::nullopt;
  return load_chat_template(setup.folder);
}

EngineSetup set_up_core(const EngineConfig& config, std::function<void()> on_failure) {
  if (config.cluster.node_rank > 0) {
    throw Error(fmt::format(
        "--node-rank is {}, but the engine is on node 0; the other nodes run quire serve with the "
        "same settings.",
        config.cluster.node_rank));
  }
  EngineSetup setup = set_up_node(config);
  setup.executor.on_failure = std::move(on_failure);
  return setup;
}

std::unique_ptr<AnswerCompiler> make_answer_compiler(const EngineSetup& setup,
                                                     const std::optional<Tokenizer>& tokenizer) {
  AnswerCompilerOptions options;
  options.vocab_size = setup.model.vocab_size;
  options.eos_token_ids = setup.generation.eos_token_ids;
  options.generation.white_space = grammar::parse_white_space(setup.config.structured_whitespace);
  return std::make_unique<AnswerCompiler>(tokenizer, std::move(options));
}

// If a step with prompts takes longer than this, in seconds, it is awaited before the next is
// scheduled: so a request that comes meanwhile is in the next step, not in the one after it. The
// time to schedule, below a millisecond, is then not hidden behind a step, but it is less than a
// hundredth.
constexpr double kLongStep = 0.1;

// The sequences whose token a step could not choose.
std::set<SequenceId> with_invalid_logits(const StepOutput& output) {
  std::set<SequenceId> ids;
  for (const SequenceOutput& sequence : output.sequences) {
    if (sequence.invalid_logits) ids.insert(sequence.id);
  }
  return ids;
}

// Mixes the bits of x (splitmix64's finaliser, Steele et al. 2014).
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

EngineCore::EngineCore(const EngineConfig& config, MemoryReserve* memory_reserve,
                       std::function<void()> on_failure)
    : setup_(set_up_core(config, std::move(on_failure))),
      loras_(make_lora_store(setup_)),
      logits_processors_(std::make_shared<LogitsProcessorRegistry>()),
      answer_masks_(std::make_shared<AnswerMasks>(
          setup_.model.vocab_size, *setup_.config.max_model_len, setup_.generation.eos_token_ids)),
      scheduler_(setup_.scheduler),
      prompt_pace_(target_step_s(), setup_.config.max_num_batched_tokens),
      last_result_(Clock::now()) {
  load(memory_reserve);
  if (setup_.config.speculative_config) {
    speculator_.emplace(*setup_.config.speculative_config, setup_.config.pipeline_parallel_size);
  }
  if (setup_.max_forced_drafts > 0) forced_drafts_.emplace(!setup_.forces_ahead);
}

void EngineCore::load(MemoryReserve* memory_reserve) {
  const auto texts = std::make_shared<TextLoading>([this] {
    return ModelTexts{tokenizer_of(setup_), chat_template_of(setup_)};
  });
  ProgressCallback& on_progress = setup_.executor.on_progress;
  on_progress = [texts, tell = std::move(on_progress)](std::string_view phase, int64_t done,
                                                       int64_t total) {
    texts->check();
    if (tell) tell(phase, done, total);
  };
  try {
    executor_ = start_executor(setup_, logits_processors_, answer_masks_, memory_reserve);
  } catch (...) {
    texts->finish();  // its thread reads setup_
    throw;
  }
  try {
    ModelTexts read = texts->wait();
    tokenizer_ = std::move(read.tokenizer);
    chat_template_ = std::move(read.chat_template);
  } catch (const Error& error) {
    tell_cannot_start(setup_.executor.nodes.get(), error);
    throw;
  }
  answer_compiler_ = make_answer_compiler(setup_, tokenizer_);
}

AnswerLanguagePtr EngineCore::compile(const StructuredOutput& output) const {
  return answer_compiler_->compile(output);
}

AnswerLanguagePtr EngineCore::compile_by(const StructuredOutput& output,
                                         Clock::time_point end) const {
  return answer_compiler_->compile_by(output, end);
}

AnswerLanguagePtr EngineCore::find_compiled(const StructuredOutput& output) const {
  return answer_compiler_->find(output);
}

PreparedRequest EngineCore::prepare(std::string request_id, Prompt prompt, SamplingParams params,
                                    RequestOptions options) {
  check_params(params);
  if (options.client_weight < 1 || options.client_weight > kMaxClientWeight) {
    throw Error(fmt::format("client_weight is {}; expected 1 to {}.", options.client_weight,
                            kMaxClientWeight));
  }
  PreparedRequest prepared;
  prepared.arrival = Clock::now();
  prepared.logits_processors = std::exchange(params.logits_processors, {});
  Request& facts = prepared.facts;
  facts.id = std::move(request_id);
  facts.params = std::move(params);
  facts.has_logits_processors = !prepared.logits_processors.empty();
  facts.cache_salt = std::move(options.cache_salt);
  facts.output_kind = options.output_kind;
  facts.client = options.client;
  facts.client_weight = options.client_weight;
  facts.priority = options.priority;
  take_lora_request(options);
  if (loras_->enabled() || !options.lora.empty()) {
    set_lora(facts, options.lora, std::move(options.lora_weights));
  }
  if (auto* text = std::get_if<std::string>(&prompt)) {
    facts.prompt_token_ids =
        tokenizer().encode(*text, options.plain_text, options.add_special_tokens);
    facts.prompt = std::move(*text);
  } else {
    facts.prompt_token_ids = std::get<std::vector<int32_t>>(std::move(prompt));
  }
  check_prompt(facts.prompt_token_ids);
  if (facts.params.structured_output) {
    prepared.answer_language = compile(*facts.params.structured_output);
    check_room(facts, *prepared.answer_language);
    facts.is_constrained = true;
  }
  return prepared;
}

uint64_t EngineCore::resolve_seed(const Request& facts) const {
  return facts.params.seed ? *facts.params.seed : mix(mix(setup_.config.seed) ^ facts.number);
}

void EngineCore::add(PreparedRequest prepared) {
  if (by_id_.contains(prepared.facts.id)) {
    throw Error(fmt::format("Request id \"{}\" is in use by a request that has not finished.",
                            prepared.facts.id));
  }
  prepared.facts.number = num_requests_++;
  prepared.facts.seed = resolve_seed(prepared.facts);
  const auto request = std::make_shared<const Request>(std::move(prepared.facts));
  if (request->has_logits_processors) {
    logits_processors_->add(request->number, std::move(prepared.logits_processors));
  }
  if (request->is_constrained) answer_masks_->add(*request, std::move(prepared.answer_language));
  if (request->lora_id != 0) ++lora_requests_[{request->lora_name, request->lora_id}];
  std::vector<SequenceId> ids;
  for (int i = 0; i < request->params.n; ++i) {
    ids.push_back(next_sequence_id_++);
    scheduler_.add(Sequence(ids.back(), request, static_cast<uint32_t>(i)));
  }
  requests_.push_back(std::make_unique<RequestState>(request, prepared.arrival, ids,
                                                     tokenizer_ ? &*tokenizer_ : nullptr));
  RequestState* state = requests_.back().get();
  by_id_.emplace(request->id, state);
  for (size_t i = 0; i < ids.size(); ++i) owners_.emplace(ids[i], SequenceOwner{state, i});
}

void EngineCore::abort(const std::string& request_id) {
  const auto it = by_id_.find(request_id);
  if (it == by_id_.end()) return;
  RequestState& request = *it->second;
  for (size_t i = 0; i < request.sequence_ids().size(); ++i) {
    const SequenceId id = request.sequence_ids()[i];
    if (const int64_t preemptions = scheduler_.num_preemptions(id); preemptions > 0) {
      request.mark_preemptions(i, preemptions);
    }
    scheduler_.abort(id);
  }
  request.abort();
}

std::vector<RequestOutput> EngineCore::step() {
  if (awaits_long_step() || awaits_drafts()) {
    process(executor_->wait());
    return collect_outputs();
  }
  const bool scheduled = schedule();
  const size_t ahead = scheduled ? max_steps_in_flight() - 1 : 0;
  if (in_flight_.size() > ahead) process(executor_->wait());
  return collect_outputs();
}

bool EngineCore::awaits_long_step() const {
  // Stages of a pipeline work on several steps at a time.
  return setup_.config.target_step_s > 0 && setup_.config.pipeline_parallel_size == 1 &&
         in_flight_.size() == 1 && in_flight_.front().expected_s > kLongStep;
}

bool EngineCore::schedule() {
  propose();
  // Who decodes is counted only where it matters: it takes a look at each sequence.
  const int64_t num_decoding = prompt_pace_.has_target() ? num_decoding_in_step() : 0;
  ScheduledBatch scheduled = scheduler_.schedule(prompt_pace_.max_prompt_tokens(num_decoding),
                                                 prompt_pace_.logprobs_cost());
  scheduled.drafter_reads_prompts =
      setup_.executor.runner.draft && speculator_->reads_prompts(scheduled.sequences.size());
  auto batch = std::make_shared<const ScheduledBatch>(std::move(scheduled));
  if (batch->empty() && batch->removed.empty()) return false;
  InFlight step;
  step.num_tokens = batch->num_tokens;
  const Clock::time_point now = Clock::now();
  for (const ScheduledSequence& sequence : batch->sequences) {
    size_t num_drafts = 0;
    if (sequence.kind == ChunkKind::kVerify) {
      const bool is_forced = forced_drafts_ && forced_drafts_->take_proposed(sequence.id);
      if (is_forced) {
        step.forced.insert(sequence.id);
      } else {
        num_drafts = sequence.draft_token_ids.size();
        step.num_drafts.emplace(sequence.id, num_drafts);
      }
    }
    const auto owner = owners_.find(sequence.id);
    if (owner != owners_.end()) {
      owner->second.request->mark_scheduled(batch->step + 1, num_drafts, now);
    }
    if (sequence.kind != ChunkKind::kPrefill) continue;
    step.has_prefill = true;
    step.num_prompt_tokens += sequence.num_tokens;
    const bool scored =
        owner != owners_.end() && owner->second.request->request().params.prompt_logprobs;
    if (scored) step.num_scored_tokens += sequence.num_tokens;
  }
  if (step.has_prefill) {
    step.expected_s = prompt_pace_.expected_s(step.num_tokens, step.num_scored_tokens);
  }
  if (in_flight_.empty() || idle_) last_result_ = Clock::now();
  if (idle_) last_output_.reset();
  idle_ = false;
  in_flight_.push_back(std::move(step));
  tell_forgotten_loras();
  executor_->submit(std::move(batch));
  return true;
}

void EngineCore::account(const InFlight& step, const StepOutput& output) {
  const Clock::time_point now = Clock::now();
  const double elapsed = std::chrono::duration<double>(now - last_result_).count();
  last_result_ = now;
  (step.has_prefill ? counters_.prefill_s : counters_.decode_s) += elapsed;
  // A draft model that catches up says nothing about the price of a prompt's token.
  const double drafting_s = output.draft_s + output.draft_reading_s;
  if (step.has_prefill) {
    prompt_pace_.learn(step.num_tokens, step.num_scored_tokens,
                       std::max(elapsed - drafting_s, 0.0));
  }
  if (speculator_) learn_drafting(step, output, elapsed);
  if (speculator_ && last_output_) {
    // What a draft model had not read is no cost of these drafts.
    const double since_s = std::chrono::duration<double>(now - *last_output_).count();
    learn_outcome(step, output, std::max(since_s - output.draft_reading_s, 0.0));
  }
  last_output_ = now;
  counters_.gpu_s += output.gpu_s;
  counters_.prompt_tokens += step.num_prompt_tokens;
  counters_.num_steps += output.sequences.empty() ? 0 : 1;
}

void EngineCore::process(StepOutput output) {
  const InFlight step = std::move(in_flight_.front());
  in_flight_.pop_front();
  if (output.is_void) return take_void(std::move(output));
  account(step, output);
  if (output.sequences.empty()) return;  // it only removed sequences
  const std::set<SequenceId> invalid = with_invalid_logits(output);
  const Clock::time_point now = Clock::now();
  for (SequenceUpdate& update : scheduler_.process(std::move(output))) {
    RequestState& request = *owners_.at(update.id).request;
    if (request.failed()) continue;  // with another of its outputs
    if (invalid.contains(update.id)) {
      fail_without_logits(request);
      continue;
    }
    take_update(update, step, now);
  }
}

void EngineCore::take_void(StepOutput output) {
  last_result_ = Clock::now();
  if (!output.failure.empty()) shed_newest(output);
  scheduler_.process(std::move(output));
}

void EngineCore::shed_newest(const StepOutput& failed) {
  RequestState* newest = nullptr;
  for (const SequenceOutput& sequence : failed.sequences) {
    const auto owner = owners_.find(sequence.id);
    if (owner == owners_.end() || owner->second.request->finished()) continue;
    RequestState* const request = owner->second.request;
    if (newest == nullptr || newest->request().number < request->request().number) newest = request;
  }
  if (newest == nullptr) return;
  for (SequenceId id : newest->sequence_ids()) scheduler_.abort(id);
  newest->fail(
      fmt::format("The GPU had no memory for a step, and this request was the newest in it: {} "
                  "Other requests go on.",
                  failed.failure),
      /*out_of_memory=*/true);
}

AnswerProgress EngineCore::answer_progress(const SequenceOwner& owner, SequenceUpdate& update) {
  const Request& request = owner.request->request();
  if (!request.is_constrained) return {};
  const AnswerProgress progress =
      answer_masks_->progress(request, static_cast<uint32_t>(owner.index), update.token_ids);
  if (progress.num_tokens < update.token_ids.size()) {
    update.token_ids.truncate(progress.num_tokens);
    update.logprobs.resize(std::min(update.logprobs.size(), progress.num_tokens));
    update.end.reset();
  }
  return progress;
}

void EngineCore::take_update(SequenceUpdate& update, const InFlight& step, Clock::time_point now) {
  const SequenceOwner& owner = owners_.at(update.id);
  const AnswerProgress progress = answer_progress(owner, update);
  const bool had_forced = step.forced.contains(update.id);
  const TakenTokens taken = owner.request->append(owner.index, update, now, progress, had_forced);
  counters_.generation_tokens += taken.count;
  if (taken.stopped) scheduler_.finish(update.id, FinishReason::kStop);
  if (forced_drafts_ && owner.request->request().is_constrained) {
    learn_forced(update, had_forced, taken.stopped || update.end);
  }
  if (speculator_ && !update.token_ids.empty()) {
    const auto drafts = step.num_drafts.find(update.id);
    learn_drafts(update, drafts == step.num_drafts.end() ? 0 : drafts->second,
                 taken.stopped || update.end);
  }
}

void EngineCore::fail_without_logits(RequestState& request) {
  for (SequenceId id : request.sequence_ids()) scheduler_.abort(id);
  const char* const cause =
      "the model's logits are not finite (NaN or infinity). Its weights may be damaged, or its "
      "numbers too large for its dtype; quire check looks for the cause.";
  request.fail(fmt::format("No token can be chosen: {}{}",
                           request.request().is_constrained
                               ? "none goes on with what structured_output asks for, or "
                               : "",
                           cause));
}

std::vector<RequestOutput> EngineCore::collect_outputs() {
  std::vector<RequestOutput> outputs;
  for (auto& request : requests_) {
    if (request->wants_output()) outputs.push_back(request->take_output());
    if (!request->finished()) continue;
    for (SequenceId id : request->sequence_ids()) {
      owners_.erase(id);
      forget_drafts(id);
    }
    const Request& facts = request->request();
    if (facts.has_logits_processors) logits_processors_->remove(facts.number);
    if (facts.is_constrained) answer_masks_->remove(facts.number);
    if (facts.lora_id != 0) {
      const auto count = lora_requests_.find({facts.lora_name, facts.lora_id});
      if (--count->second == 0) lora_requests_.erase(count);
    }
    by_id_.erase(facts.id);
    request.reset();
  }
  std::erase(requests_, nullptr);
  idle_ = requests_.empty();
  return outputs;
}

bool EngineCore::is_finished() const {
  return requests_.empty();
}

std::optional<std::string> EngineCore::newest_request() const {
  for (auto request = requests_.rbegin(); request != requests_.rend(); ++request) {
    if (!(*request)->finished()) return (*request)->request().id;
  }
  return std::nullopt;
}

EngineStats EngineCore::stats() const {
  const SchedulerStats scheduler = scheduler_.stats();
  EngineStats stats = counters_;
  stats.num_running = scheduler.num_running;
  stats.num_waiting = scheduler.num_waiting;
  stats.num_preemptions = scheduler.num_preemptions;
  stats.num_kv_blocks = scheduler.num_blocks;
  stats.kv_cache_usage =
      static_cast<double>(scheduler.num_used_blocks) / static_cast<double>(scheduler.num_blocks);
  stats.prefix_cache_queries = scheduler.prefix_cache_queried_tokens;
  stats.prefix_cache_hits = scheduler.prefix_cache_hit_tokens;
  if (loras_->enabled()) stats.lora = lora_stats(scheduler);
  stats.stages = stage_stats();
  if (setup_.executor.nodes) {
    stats.node_bytes_sent = static_cast<int64_t>(setup_.executor.nodes->bytes_sent());
  }
  return stats;
}

std::vector<StageStats> EngineCore::stage_stats() const {
  std::vector<StageStats> stages;
  for (const StageLoad& stage : executor_->stages()) {
    stages.push_back({stage.num_steps, stage.busy_s});
  }
  return stages;
}

SamplingParams EngineCore::default_sampling_params() const {
  const GenerationConfig& given = setup_.generation;
  SamplingParams params;
  if (given.temperature) params.temperature = *given.temperature;
  if (given.do_sample && !*given.do_sample) params.temperature = 0;
  if (given.top_k) params.top_k = *given.top_k;
  if (given.top_p) params.top_p = *given.top_p;
  if (given.min_p) params.min_p = *given.min_p;
  if (given.repetition_penalty) params.repetition_penalty = *given.repetition_penalty;
  if (given.max_new_tokens) params.max_tokens = *given.max_new_tokens;
  return params;
}

const Tokenizer& EngineCore::tokenizer() const {
  if (!tokenizer_) {
    throw Error(
        setup_.config.skip_tokenizer_init
            ? std::string("The tokenizer was not loaded (--skip-tokenizer-init); give prompts as "
                          "token ids.")
            : fmt::format("{} has no {}; give prompts as token ids.", setup_.folder.string(),
                          setup_.folder.extension() == ".gguf" ? "tokenizer" : "tokenizer.json"));
  }
  return *tokenizer_;
}

const ChatTemplate& EngineCore::chat_template() const {
  if (!chat_template_) {
    throw Error(
        fmt::format("{} has no chat template ({}); it may be a base model: give prompts as text.",
                    setup_.folder.string(),
                    setup_.folder.extension() == ".gguf"
                        ? "the key tokenizer.chat_template"
                        : "chat_template.jinja, or chat_template in tokenizer_config.json"));
  }
  return *chat_template_;
}

}  // namespace quire
