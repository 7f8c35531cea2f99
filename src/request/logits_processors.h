#pragma once
// The callbacks of requests (SamplingParams::logits_processors), for the sampler of this process.
//
// They are kept apart from what ranks are told, which is plain data: Request::has_logits_processors
// says that a request has some, and the one rank that samples, which runs in the engine's process,
// finds them here. Thread safety: any thread.
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "quire/sampling_params.h"

namespace quire {

class LogitsProcessorRegistry {
 public:
  using Processors = std::vector<LogitsProcessor>;

  // Before the request's first step.
  void add(const std::string& request_id, Processors processors) {
    const std::lock_guard lock(mutex_);
    processors_[request_id] = std::make_shared<const Processors>(std::move(processors));
  }
  // When the request has ended; a step in flight may still ask for them.
  void remove(const std::string& request_id) {
    const std::lock_guard lock(mutex_);
    processors_.erase(request_id);
  }
  // Null for a request that has ended: what is sampled for it is dropped.
  std::shared_ptr<const Processors> find(const std::string& request_id) const {
    const std::lock_guard lock(mutex_);
    const auto it = processors_.find(request_id);
    return it == processors_.end() ? nullptr : it->second;
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<const Processors>> processors_;
};

}  // namespace quire
