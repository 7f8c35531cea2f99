#include "cli/loading.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/progress.h"
#include "cli/options/engine_options.h"
#include "cli/terminal/text_format.h"

namespace quire::cli {
namespace {

// What launchers of MPI programs (Open MPI's mpirun; MPICH's and Intel's) tell each process they
// start: how many there are, and which one it is.
constexpr std::array<std::pair<const char*, const char*>, 2> kLauncherVariables = {
    {{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"}, {"PMI_SIZE", "PMI_RANK"}}};

std::optional<int> number_in(const char* variable) {
  const char* const text = std::getenv(variable);
  if (text == nullptr) return std::nullopt;
  int value = 0;
  const std::string_view digits(text);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return value;
}

// Where nothing says how many nodes there are, and there are ranks to spread, what a launcher says
// of the processes that it started goes for the nodes.
void take_nodes_of_launcher(EngineConfig& config) {
  if (config.cluster.num_nodes > 1) return;
  if (config.tensor_parallel_size * config.pipeline_parallel_size == 1) return;
  for (const auto& [size_variable, rank_variable] : kLauncherVariables) {
    const std::optional<int> size = number_in(size_variable);
    const std::optional<int> rank = number_in(rank_variable);
    if (!size || !rank || *size < 2) continue;
    config.cluster.num_nodes = *size;
    config.cluster.node_rank = *rank;
    return;
  }
}

// False for a length that the engine refuses, about which there is nothing else to say.
bool has_synthetic_drafts(const EngineConfig& config) {
  if (!config.speculative_config) return false;
  const std::optional<double>& length = config.speculative_config->synthetic_acceptance_length;
  return length && *length >= 1 && *length <= config.speculative_config->num_speculative_tokens + 1;
}

}  // namespace

EngineConfig ready_to_load(EngineConfig config, const Terminal& terminal) {
  config.model = model_folder(config.model);
  take_nodes_of_launcher(config);
  if (config.cluster.num_nodes > 1) {
    const char* const secret = std::getenv("QUIRE_GROUP_SECRET");
    config.cluster.secret = secret == nullptr ? "" : secret;
    config.cluster.on_message = [&err = terminal.err](const std::string& line) {
      err << fmt::format("quire: {}\n", line) << std::flush;
    };
  }
  if (has_synthetic_drafts(config)) {
    terminal.err << "quire: synthetic_acceptance_length is for measurements: noise decides which "
                    "drafts are kept, and answers are wrong\n";
  }
  if (!terminal.err_is_terminal) return config;
  auto bar = std::make_shared<ProgressBar>(STDERR_FILENO, "Loading");
  config.on_progress = [bar](std::string_view phase, int64_t done, int64_t total) {
    if (done >= total) {
      bar->clear();
      return;
    }
    bar->set_label(std::string(phase));
    bar->update(static_cast<double>(done) / static_cast<double>(total),
                fmt::format("{} of {}", format_bytes(done), format_bytes(total)));
  };
  return config;
}

void report_device(const MemoryPlan& plan, Terminal& terminal) {
  if (!plan.device_note.empty()) terminal.err << "quire: " << plan.device_note << '\n';
}

}  // namespace quire::cli
