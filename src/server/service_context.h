#pragma once
// Shared by the handlers of requests: references to the parts of the server.
//
// Thread safety: immutable; each part has its own rules.
#include <functional>
#include <memory>
#include <string>

#include "base/memory_account.h"
#include "base/timer_queue.h"
#include "quire/chat_template.h"
#include "quire/tokenizer.h"
#include "server/admission.h"
#include "server/api/model_info.h"
#include "server/api/openapi.h"
#include "server/engine_port.h"
#include "server/key_limits.h"
#include "server/observe/access_log.h"
#include "server/observe/metrics.h"
#include "server/observe/request_log.h"
#include "server/observe/trace_exporter.h"
#include "server/ready_list.h"
#include "server/resumable_streams.h"
#include "server/service_config.h"
#include "server/worker_pool.h"

namespace quire::server {

struct ServiceContext {
  const ServiceConfig& config;
  const ModelInfo& model;
  const ApiDescription& api;
  const Tokenizer* tokenizer;         // null where the model has none
  const ChatTemplate* chat_template;  // null where the model has none
  EnginePort& engine;
  Admission& admission;   // I/O thread only
  KeyLimits& key_limits;  // I/O thread only
  ServerMetrics& metrics;
  AccessLog& log;
  RequestLog& request_log;
  TraceExporter* traces;                  // null: none are exported
  ResumableStreams& streams;              // I/O thread only
  std::shared_ptr<MemoryAccount> memory;  // of all requests
  TimerQueue& timers;
  WorkerPool& workers;
  WorkerPool& compilers;        // of what answers have to be, where that is quick
  WorkerPool& slow_compilers;   // of the rest
  WorkerPool& adapter_readers;  // for requests whose adapters are not in memory
  std::shared_ptr<ReadyList> ready;
  // Runs a task on the I/O thread, after this call has returned. From any thread. If there is no
  // memory, it waits for some, because a lost task would never be made up for.
  std::function<void(const std::function<void()>&)> post;
  // Called on the I/O thread when the engine has failed for good, with its message.
  std::function<void(const std::string&)> engine_failed;
};

}  // namespace quire::server
