#pragma once
// The callbacks of requests (SamplingParams::logits_processors), for the sampler of this process.
//
// They are kept apart from the batches, which are plain data: Request::has_logits_processors says
// that a request has callbacks. The one rank that samples runs in the engine's process and finds
// them here by Request::number, not by id: a step in flight when a request ends may run when
// another request has the same id. Thread safety: any thread.
// one has its id. Thread safety: any thread.
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "quire/sampling_params.h"

namespace quire {

class LogitsProcessorRegistry {
 public:
  using Processors = std::vector<LogitsProcessor>;

  // Before the request's first step.
  void add(uint64_t request_number, Processors processors) {
    const std::lock_guard lock(mutex_);
    processors_[request_number] = std::make_shared<const Processors>(std::move(processors));
  }
  // When the request has ended. A step in flight may still ask for them.
  void remove(uint64_t request_number) {
    const std::lock_guard lock(mutex_);
    processors_.erase(request_number);
  }
  // Null for a request that has ended: its samples are dropped anyway.
  std::shared_ptr<const Processors> find(uint64_t request_number) const {
    const std::lock_guard lock(mutex_);
    const auto it = processors_.find(request_number);
    return it == processors_.end() ? nullptr : it->second;
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<uint64_t, std::shared_ptr<const Processors>> processors_;
};

}  // namespace quire
