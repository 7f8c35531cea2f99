// quire pull: downloads a model from the Hugging Face hub into the local cache.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <ostream>

#include "base/progress.h"
#include "cli/commands/command.h"
#include "cli/json_lines.h"
#include "cli/options/option_helpers.h"
#include "cli/terminal/orderly_stop.h"
#include "cli/terminal/text_format.h"
#include "cli/usage_error.h"
#include "hub/download.h"
#include "hub/gguf_choice.h"
#include "hub/model_path.h"
#include "quire/version.h"

namespace quire::cli {
namespace {

constexpr const char* kPullFooter = R"(Examples:
  quire pull Qwen/Qwen3-0.6B
  quire pull meta-llama/Llama-3.2-1B --revision main    (gated: set HF_TOKEN)
  quire pull Qwen/Qwen3-0.6B --include '*.md' --json
  quire pull Qwen/Qwen3-0.6B-GGUF:Q8_0                  (one of a repository's GGUF files)

The model goes where Hugging Face's tools keep theirs: $HF_HUB_CACHE, else $HF_HOME/hub, else
~/.cache/huggingface/hub. What was interrupted goes on where it stopped. HF_TOKEN, else the file
$HF_HOME/token, says who you are; HF_ENDPOINT names another hub.)";

// Bytes a second over the last moments.
class RateMeter {
 public:
  // Takes the bytes so far; returns the rate, 0 while it is not known.
  double update(int64_t bytes) {
    const Clock::time_point now = Clock::now();
    if (samples_.empty() || now - samples_.back().time >= kInterval) {
      samples_.push_back({now, bytes});
      if (samples_.size() > kMaxSamples) samples_.pop_front();
    }
    const double seconds = std::chrono::duration<double>(now - samples_.front().time).count();
    return seconds < 1 ? 0 : static_cast<double>(bytes - samples_.front().bytes) / seconds;
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct Sample {
    Clock::time_point time;
    int64_t bytes;
  };
  static constexpr auto kInterval = std::chrono::milliseconds(500);
  static constexpr size_t kMaxSamples = 20;

  std::deque<Sample> samples_;
};

// Shows a pull: a bar for all of it on a terminal, else a line a file.
class PullView {
 public:
  PullView(Terminal& terminal, bool quiet)
      : terminal_(terminal), lines_(!quiet), bar_(STDERR_FILENO, "Pulling") {}

  PullCallbacks callbacks() {
    return {
        [this](int64_t done, int64_t at_start, int64_t total) { progress(done, at_start, total); },
        [this](const PulledFile& file) { complete(file); },
        [this](const std::string& text) { print(text); }};
  }
  void finish() { bar_.clear(); }

 private:
  void progress(int64_t done, int64_t at_start, int64_t total) {
    if (!bar_.visible()) return;
    const double rate = std::max(0.0, rate_.update(done));
    const auto share = [&](int64_t bytes, int64_t of) {
      return of > 0 ? static_cast<double>(bytes) / static_cast<double>(of) : 1.0;
    };
    // The time left follows from what this run still has to do, not from what was there before.
    bar_.update(
        share(done - at_start, total - at_start),
        fmt::format(
            "{} of {}{}", format_bytes(done), format_bytes(total),
            rate > 0 ? fmt::format(", {}/s", format_bytes(static_cast<int64_t>(rate))) : ""));
  }
  void complete(const PulledFile& file) {
    if (bar_.visible() || !lines_) return;
    print(fmt::format("{}  {}{}", file.name, format_bytes(file.bytes),
                      file.downloaded ? "" : "  (was there)"));
  }
  void print(const std::string& text) {
    bar_.clear();
    terminal_.err << printable_line(text) << std::endl;
  }

  Terminal& terminal_;
  bool lines_;
  ProgressBar bar_;
  RateMeter rate_;
};

Json to_json(const PullResult& result) {
  Json json;
  json["path"] = result.model.string();
  json["commit"] = result.commit;
  json["files"] = Json::array();
  for (const PulledFile& file : result.files) {
    json["files"].push_back(
        {{"name", file.name}, {"bytes", file.bytes}, {"downloaded", file.downloaded}});
  }
  json["bytes"] = result.bytes;
  json["was_complete"] = result.was_complete;
  return json;
}

class PullCommand : public Command {
 public:
  explicit PullCommand(CLI::App& root)
      : app_(add_command(root, "pull", "Download a model from the Hugging Face hub", kPullFooter)) {
    add_text(
        *app_,
        {.name = "REPOSITORY",
         .placeholder = "TEXT",
         .help = "The model's name on the hub: ORG/NAME, or ORG/NAME:Q4_K_M for one of its GGUF "
                 "files",
         .is_required = true},
        name_);
    add_text(*app_,
             {"--revision", "TEXT", fmt::format("A branch, tag or commit [{}]", options_.revision)},
             options_.revision);
    add_text_list(*app_,
                  {"--include", "PATTERN",
                   "Take the files that match this pattern, instead of what quire needs "
                   "(repeatable)"},
                  options_.patterns.include);
    add_text_list(
        *app_, {"--exclude", "PATTERN", "Leave out the files that match this pattern (repeatable)"},
        options_.patterns.exclude);
    add_flag(*app_, {"--json", "", "Print a JSON object"}, json_);
  }

  const CLI::App& app() const override { return *app_; }

  int run(Terminal& terminal) override {
    GgufName name = parse_gguf_name(name_);
    if (!name.variant.empty() && !options_.patterns.include.empty()) {
      throw UsageError("--include goes with ORG/NAME, which a GGUF file's name does not follow");
    }
    options_.repository = std::move(name.model);
    options_.patterns.gguf = std::move(name.variant);
    options_.cache = hub_cache_folder();
    options_.hub = hub_settings_from_environment();
    options_.hub.user_agent = "quire/" + std::string(version());
    const OrderlyStop stop;
    const auto result = pull_until(stop, terminal);
    if (!result) {
      terminal.err << "quire: interrupted; the same command goes on where it stopped" << std::endl;
      return stop.exit_code();
    }
    if (json_) {
      terminal.out << to_line(to_json(*result)) << '\n';
    } else {
      print_result(*result, terminal);
    }
    return kExitOk;
  }

 private:
  std::optional<PullResult> pull_until(const OrderlyStop& stop, Terminal& terminal) {
    PullView view(terminal, json_);
    auto result = pull(options_, view.callbacks(), stop.token());
    view.finish();
    return result;
  }

  void print_result(const PullResult& result, Terminal& terminal) const {
    const bool one = result.files.size() == 1;
    terminal.out << fmt::format("{} {}: {} file{}, {}\n{}\n", name_,
                                result.was_complete ? "is already complete" : "is complete",
                                result.files.size(), one ? "" : "s", format_bytes(result.bytes),
                                result.model.string());
    if (!options_.patterns.include.empty()) return;
    const bool by_name = options_.revision == "main";
    terminal.out << "Next: quire chat " << (by_name ? name_ : result.model.string()) << '\n';
  }

  CLI::App* app_;
  std::string name_;
  PullOptions options_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_pull_command(CLI::App& root) {
  return std::make_unique<PullCommand>(root);
}

}  // namespace quire::cli
