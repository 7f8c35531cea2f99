#include "cli/bench/step_meter.h"

#include <fmt/format.h>

#include <cmath>

#include "cli/terminal/text_format.h"

namespace quire::cli {

StepMeter::Step StepMeter::update(const EngineStats& now) {
  const Step step = {.prefill_tokens = now.prompt_tokens - last_.prompt_tokens,
                     .output_tokens = now.generation_tokens - last_.generation_tokens,
                     .prefill_s = now.prefill_s - last_.prefill_s,
                     .decode_s = now.decode_s - last_.decode_s};
  last_ = now;
  total_.prefill_tokens += step.prefill_tokens;
  total_.output_tokens += step.output_tokens;
  total_.prefill_s += step.prefill_s;
  total_.decode_s += step.decode_s;
  if (step.prefill_tokens == 0) decode_step_tokens_ += step.output_tokens;
  return step;
}

double StepMeter::prefill_rate() const {
  return total_.prefill_s > 0 ? static_cast<double>(total_.prefill_tokens) / total_.prefill_s : 0;
}

double StepMeter::decode_rate() const {
  return total_.decode_s > 0 ? static_cast<double>(decode_step_tokens_) / total_.decode_s : 0;
}

std::string StepMeter::rates() const {
  std::string text;
  if (total_.prefill_s > 0) {
    text = fmt::format("prefill {} tok/s", with_commas(std::llround(prefill_rate())));
  }
  if (total_.decode_s > 0) {
    text += fmt::format("{}decode {} tok/s", text.empty() ? "" : ", ",
                        with_commas(std::llround(decode_rate())));
  }
  return text;
}

}  // namespace quire::cli
