// quire generate: a batch of prompts in, their outputs out.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <atomic>
#include <iostream>
#include <optional>

#include "base/progress.h"
#include "cli/batch.h"
#include "cli/bench/step_meter.h"
#include "cli/commands/command.h"
#include "cli/loading.h"
#include "cli/node.h"
#include "cli/options/chat_options.h"
#include "cli/options/constraint_options.h"
#include "cli/options/engine_options.h"
#include "cli/options/lora_options.h"
#include "cli/options/option_helpers.h"
#include "cli/output_json.h"
#include "cli/terminal/interrupts.h"
#include "cli/usage_error.h"
#include "grammar/grammar.h"

namespace quire::cli {
namespace {

constexpr const char* kGenerateFooter =
    R"(Prompts run together, in one batch; outputs come in the order of the prompts. With
several outputs, each is headed by its prompt's number.

Lines of a .jsonl file are objects with one of
  {"prompt": "text"}   {"prompt_token_ids": [1, 2]}   {"messages": [{"role": "user", "content": "hi"}]}
and any sampling options with underscores ("max_tokens": 64), which override the command's; with
messages also "tools", "add_generation_prompt" and "chat_template_kwargs". Where not all prompts
fit at a time, those with the lower "priority" (an integer, 0) go first. "lora" names the adapter (--lora)
that answers a line, and null none. What a line's output has to be is said as to the server:
  "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {...}}}
  "structured_outputs": {"json": {...}} or {"regex": ...}, {"grammar": ...}, {"choice": ["a", "b"]}

Each line of --json is {"index", "prompt", "text", "token_ids", "finish_reason": "stop" | "length" |
"abort", "num_prompt_tokens", "num_cached_tokens"}, with "output_index" where --n is more than 1,
"logprobs" and "prompt_logprobs" where asked for, "steered_to_end": true where a constraint ended the
output in time for its limit on tokens, and "error" where the prompt failed.

Examples:
  quire generate --chat -p "What does candid mean?" --temperature 0 --max-tokens 64
  quire generate ~/models/Qwen3-0.6B -p "Once upon a time" -p "It was" --max-tokens 100
  quire generate ~/models/Qwen3-0.6B --prompt-file prompts.jsonl --json > outputs.jsonl
  quire generate ~/models/tiny --skip-tokenizer-init --prompt-tokens 1,2,3 --json
  quire generate --chat -p "Is candid a noun or a verb?" --choice noun --choice verb --choice other
  quire generate --chat -p "define apple" --max-tokens 100 --json-schema \
    '{"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}'
  quire generate Qwen/Qwen3-0.6B --lora caps=./my-adapter --chat -p "Say hello."
  echo "define pear" | quire generate --chat)";

// Before the model is loaded, which takes longer. Throws UsageError.
void check_constraint(const SamplingFields& fields) {
  const std::optional<StructuredOutput> given = fields.apply({}).structured_output;
  if (!given) return;
  const auto check = [](const char* option, const auto& compile) {
    try {
      compile();
    } catch (const Error& error) {
      throw UsageError(fmt::format("{}: {}", option, error.what()));
    }
  };
  using Kind = StructuredOutput::Kind;
  switch (given->kind) {
    case Kind::kJsonSchema:
      return check("--json-schema", [&] { grammar::compile_json_schema(given->text); });
    case Kind::kRegex:
      return check("--regex", [&] { grammar::compile_regex(given->text); });
    case Kind::kGrammar:
      return check("--grammar", [&] { grammar::compile_gbnf(given->text); });
    case Kind::kChoice:
      return check("--choice", [&] { grammar::compile_choice(given->choices); });
    case Kind::kJsonObject:
    case Kind::kTags:  // there is no option for it
      return;
  }
}

struct PromptSource {
  enum class Kind { kText, kTokens, kFile };
  Kind kind;
  std::string value;
};

class GenerateCommand : public Command {
 public:
  explicit GenerateCommand(CLI::App& root);

  const CLI::App& app() const override { return *app_; }
  int run(Terminal& terminal) override;

 private:
  void add_prompt_options();
  std::vector<PromptRequest> collect_prompts(Terminal& terminal) const;
  void apply_chat(std::vector<PromptRequest>& requests) const;
  void print_output(Terminal& terminal, size_t index, const Json& prompt,
                    const RequestOutput& output, bool with_heading) const;

  CLI::App* app_;
  EngineConfig config_;
  SamplingFields sampling_;
  ChatOptions chat_options_;
  std::vector<PromptSource> sources_;
  GivenAdapters adapters_;
  bool chat_ = false;
  bool json_ = false;
};

// On a terminal, where nothing else reads it.
void report_drafts(const SpeculativeStats& drafts, const Terminal& terminal) {
  if (drafts.num_draft_tokens == 0 || !terminal.err_is_terminal) return;
  terminal.err << styled(fmt::format("{} of {} draft tokens were kept\n",
                                     drafts.num_accepted_tokens, drafts.num_draft_tokens),
                         Style::kDim, terminal.err_colours);
}

GenerateCommand::GenerateCommand(CLI::App& root)
    : app_(add_command(root, "generate", "Generate text from prompts", kGenerateFooter)) {
  add_prompt_options();
  add_chat_options(*app_, chat_options_);
  add_sampling_options(*app_, sampling_);
  add_constraint_options(*app_, sampling_);
  add_lora_options(*app_, adapters_, /*several=*/true);
  add_engine_options(*app_, config_, /*seed_is_taken=*/true);
}

void GenerateCommand::add_prompt_options() {
  constexpr const char* kPromptGroup = "Prompts";
  const auto add_source = [this](const char* option, PromptSource::Kind kind, const char* help,
                                 const char* placeholder) {
    add_repeatable(*app_, {option, placeholder, help, kPromptGroup},
                   [this, kind](const std::string& value) {
                     sources_.push_back({kind, value});
                   });
  };
  add_source("-p,--prompt", PromptSource::Kind::kText, "A prompt; repeatable", "TEXT");
  add_source("--prompt-tokens", PromptSource::Kind::kTokens, "A prompt as token ids; repeatable",
             "ID,...");
  add_source(
      "--prompt-file", PromptSource::Kind::kFile,
      "Prompts from a file: JSON lines if its name ends in .jsonl, else a prompt a line; blank "
      "lines are skipped; '-' is standard input, which is also read where it is no terminal and no "
      "prompt is given",
      "FILE");
  add_flag(*app_,
           {"--chat", "", "Send each text prompt as a message, through the model's chat template",
            kPromptGroup},
           chat_);
  add_flag(*app_, {"--json", "", "Print a JSON object for each output, one a line"}, json_);
}

std::vector<PromptRequest> GenerateCommand::collect_prompts(Terminal& terminal) const {
  std::vector<PromptSource> sources = sources_;
  if (sources.empty() && !terminal.in_is_terminal) {
    sources.push_back({PromptSource::Kind::kFile, "-"});
  }
  if (sources.empty()) {
    throw UsageError(
        "there is no prompt: give one with -p, --prompt-file or --prompt-tokens (see 'quire "
        "generate "
        "--help')");
  }
  std::vector<PromptRequest> requests;
  for (const PromptSource& source : sources) {
    const std::string where = fmt::format("prompt {}", requests.size());
    if (source.kind == PromptSource::Kind::kText) {
      requests.push_back({.where = where, .prompt = source.value, .sampling = {}});
    } else if (source.kind == PromptSource::Kind::kTokens) {
      requests.push_back({.where = where,
                          .prompt = parse_token_ids(source.value, "--prompt-tokens"),
                          .sampling = {}});
    } else {
      std::vector<PromptRequest> lines =
          source.value == "-" ? read_prompts(terminal.in, "standard input", PromptFormat::kText)
                              : read_prompt_file(source.value);
      std::move(lines.begin(), lines.end(), std::back_inserter(requests));
    }
  }
  return requests;
}

void GenerateCommand::apply_chat(std::vector<PromptRequest>& requests) const {
  bool any_chat = chat_;
  for (PromptRequest& request : requests) {
    if (auto* chat = std::get_if<ChatInput>(&request.prompt)) {
      any_chat = true;
      if (is_given(*app_, "--system")) {
        throw UsageError(fmt::format(
            "{}: --system is for prompts of text; these messages say themselves what opens them",
            request.where));
      }
      // What a line says itself comes first.
      Json kwargs = chat_options_.template_kwargs;
      kwargs.update(chat->template_kwargs);
      chat->template_kwargs = std::move(kwargs);
    } else if (chat_) {
      const auto* text = std::get_if<std::string>(&request.prompt);
      if (text == nullptr) {
        throw UsageError(
            fmt::format("{}: --chat needs prompts of text: token ids cannot go through a template",
                        request.where));
      }
      ChatInput input = chat_options_.new_chat();
      input.messages.push_back({{"role", "user"}, {"content", *text}});
      request.prompt = std::move(input);
    }
  }
  for (const char* option : {"--chat-template-kwargs", "--no-think"}) {
    if (is_given(*app_, option) && !any_chat) {
      throw UsageError(
          fmt::format("{}: no prompt goes through the chat template; give --chat, too", option));
    }
  }
}

void GenerateCommand::print_output(Terminal& terminal, size_t index, const Json& prompt,
                                   const RequestOutput& output, bool with_heading) const {
  for (const CompletionOutput& completion : output.outputs) {
    if (json_) {
      terminal.out << to_line(output_to_json(index, prompt, output, completion)) << '\n';
      continue;
    }
    if (with_heading) {
      const std::string heading = output.outputs.size() > 1
                                      ? fmt::format("--- {}.{}", index, completion.index)
                                      : fmt::format("--- {}", index);
      terminal.out << styled(heading, Style::kDim, terminal.out_colours) << '\n';
    }
    // A model that was loaded without a tokenizer answers in token ids.
    if (config_.skip_tokenizer_init) {
      terminal.out << fmt::format("{}", fmt::join(completion.token_ids, ",")) << '\n';
    } else {
      terminal.out << completion.text << '\n';
    }
  }
  flush(terminal);
}

int GenerateCommand::run(Terminal& terminal) {
  try {
    sampling_.validate();
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
  check_constraint(sampling_);
  for (const char* field : {"logprobs", "prompt_logprobs"}) {
    if (sampling_.has(field) && !json_) {
      throw UsageError(
          fmt::format("--{}: only --json prints log-probabilities; give it, too",
                      field == std::string_view("logprobs") ? "logprobs" : "prompt-logprobs"));
    }
  }
  if (is_given(*app_, "--system") && !chat_) {
    throw UsageError("--system: it goes before the messages of a chat; give --chat, too");
  }
  std::vector<PromptRequest> requests = collect_prompts(terminal);
  apply_chat(requests);

  const Interrupts interrupts;
  std::atomic<bool> running = false;
  std::atomic<bool> stop = false;
  const InterruptHandler handler(interrupts, [&] {
    // Loading cannot be stopped half-way, and a second Ctrl-C does not wait for a step to end.
    if (!running || stop.exchange(true)) exit_interrupted();
  });

  EngineConfig config = config_;
  config.lora = lora_options_for(adapters_);
  for (PromptRequest& request : requests) {
    if (!request.lora && !adapters_.adapters.empty()) {
      request.lora = adapters_.adapters.front().name;
    }
  }
  if (const SamplingParams given = sampling_.apply({}); given.seed) config.seed = *given.seed;
  config = ready_to_load(std::move(config), terminal);
  if (config.cluster.node_rank > 0) return run_node(config, 0, terminal);
  LLMEngine engine(std::move(config));
  report_device(engine.memory_plan(), terminal);
  const SamplingParams defaults = sampling_.apply(engine.default_sampling_params());
  Batch batch(engine);
  bool several = requests.size() > 1;
  for (const PromptRequest& request : requests) {
    const SamplingParams params = request.sampling.apply(defaults);
    several = several || params.n > 1;
    batch.add(request, params);
  }
  running = true;

  ProgressBar bar(STDERR_FILENO, "Generating");
  StepMeter meter(engine.stats());
  size_t num_cut = 0;
  bool failed = false;
  const auto on_output = [&](size_t index, const Json& prompt, const RequestOutput& output) {
    bar.clear();
    if (!output.error.empty()) {
      print_error(terminal, fmt::format("{}: {}", requests[index].where, output.error));
      failed = true;
      if (!json_) return;
    }
    for (const CompletionOutput& completion : output.outputs) {
      if (completion.finish_reason == FinishReason::kLength) ++num_cut;
    }
    print_output(terminal, index, prompt, output, several);
  };
  const auto on_step = [&](const Batch::Progress& progress, const EngineStats& stats) {
    meter.update(stats);
    bar.update(progress.fraction, fmt::format("{} of {} prompts, {}", progress.num_finished,
                                              batch.size(), meter.rates()));
  };
  batch.run({.on_output = on_output, .on_step = on_step}, stop);
  bar.clear();
  if (num_cut > 0 && !sampling_.has("max_tokens") && terminal.err_is_terminal && !json_) {
    terminal.err << styled(
        fmt::format("{} cut at the token limit; --max-tokens sets it\n",
                    num_cut == 1 ? "1 output was" : fmt::format("{} outputs were", num_cut)),
        Style::kDim, terminal.err_colours);
  }
  report_drafts(engine.stats().speculative, terminal);
  if (stop) return kExitInterrupted;
  return failed ? kExitFailure : kExitOk;
}

}  // namespace

std::unique_ptr<Command> make_generate_command(CLI::App& root) {
  return std::make_unique<GenerateCommand>(root);
}

}  // namespace quire::cli
