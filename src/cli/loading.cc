#include "cli/loading.h"

#include <fmt/format.h>
#include <unistd.h>

#include <memory>

#include "base/progress.h"
#include "cli/options/engine_options.h"
#include "cli/terminal/text_format.h"

namespace quire::cli {

EngineConfig ready_to_load(EngineConfig config, const Terminal& terminal) {
  config.model = model_folder(config.model);
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
