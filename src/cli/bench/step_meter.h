#pragma once
// The speed of an engine's steps, from its counters before and after each.
#include <cstdint>
#include <string>

#include "quire/llm_engine.h"

namespace quire::cli {

class StepMeter {
 public:
  // The work of one step.
  struct Step {
    int64_t prefill_tokens = 0;
    int64_t output_tokens = 0;
    double prefill_s = 0;  // its time, if it held prompt tokens
    double decode_s = 0;   // its time, if it held none
  };

  explicit StepMeter(const EngineStats& start) : last_(start) {}

  // Takes the counters after a step.
  Step update(const EngineStats& now);

  // Prompt tokens a second, over the steps that held some.
  double prefill_rate() const;
  // Tokens generated a second, over the steps that held no prompt tokens.
  double decode_rate() const;
  const Step& total() const { return total_; }
  int64_t decode_step_tokens() const { return decode_step_tokens_; }

  // The rates known so far: "prefill 5,120 tok/s, decode 812 tok/s".
  std::string rates() const;

 private:
  EngineStats last_;
  Step total_;
  int64_t decode_step_tokens_ = 0;
};

}  // namespace quire::cli
