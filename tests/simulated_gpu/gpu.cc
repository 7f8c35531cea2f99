#include "simulated_gpu/gpu.h"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <optional>

#include "quire/error.h"
#include "simulated_gpu/stream.h"

namespace quire::simulated {
namespace {

std::optional<int64_t> to_number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

int64_t number_in(const char* name, int64_t otherwise) {
  const std::string_view text = variable(name);
  if (text.empty()) return otherwise;
  const std::optional<int64_t> value = to_number(text);
  if (!value) throw Error(fmt::format("{} is \"{}\"; expected a number.", name, text));
  return *value;
}

Run run_in(const char* name) {
  const std::string_view text = variable(name);
  if (text.empty()) return {};
  const size_t first = text.find(':');
  const size_t last = text.rfind(':');
  if (first != last) {
    const auto gpu = to_number(text.substr(0, first));
    const auto number = to_number(text.substr(last + 1));
    const std::string kernel(text.substr(first + 1, last - first - 1));
    if (gpu && number && !kernel.empty()) return {static_cast<int>(*gpu), kernel, *number};
  }
  throw Error(fmt::format("{} is \"{}\"; expected GPU:NAME:NUMBER.", name, text));
}

Pace pace_in(const char* name) {
  const std::string_view text = variable(name);
  if (text.empty()) return Pace::kSteady;
  if (text == "lazy") return Pace::kLazy;
  if (text == "instant") return Pace::kInstant;
  throw Error(fmt::format("{} is \"{}\"; expected lazy or instant.", name, text));
}

}  // namespace

Settings Settings::from_environment() {
  Settings settings;
  settings.num_gpus =
      static_cast<int>(number_in("QUIRE_SIMULATED_GPUS", int64_t{settings.num_gpus}));
  settings.memory_bytes = number_in("QUIRE_SIMULATED_GPU_MEMORY", settings.memory_bytes);
  settings.compute_capability = static_cast<int>(
      number_in("QUIRE_SIMULATED_CAPABILITY", int64_t{settings.compute_capability}));
  settings.fault = run_in("QUIRE_SIMULATED_FAULT");
  settings.hold = run_in("QUIRE_SIMULATED_HOLD");
  settings.hold_fifo = variable("QUIRE_SIMULATED_HOLD_FIFO");
  settings.pace = pace_in("QUIRE_SIMULATED_PACE");
  settings.has_decoder_step = number_in("QUIRE_SIMULATED_DECODER_STEP", 0) != 0;
  settings.machine = number_in("QUIRE_SIMULATED_MACHINE", getpid());
  return settings;
}

Gpu::Gpu(int index, const Settings& settings)
    : index_(index),
      pace_(settings.pace),
      has_decoder_step_(settings.has_decoder_step),
      compute_capability_(settings.compute_capability),
      machine_(settings.machine),
      total_bytes_(settings.memory_bytes),
      fault_(settings.fault),
      hold_(settings.hold),
      hold_fifo_(settings.hold_fifo) {}

std::array<uint8_t, 16> Gpu::uuid() const {
  std::array<uint8_t, 16> uuid{};
  for (size_t i = 0; i < sizeof(machine_); ++i) {
    uuid.at(i) = static_cast<uint8_t>(machine_ >> (8 * i));
  }
  uuid.back() = static_cast<uint8_t>(index_);
  return uuid;
}

int64_t Gpu::free_bytes() {
  const std::lock_guard lock(mutex_);
  return total_bytes_ - taken_bytes_;
}

bool Gpu::take(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes > total_bytes_ - taken_bytes_) return false;
  taken_bytes_ += bytes;
  return true;
}

void Gpu::give_back(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  taken_bytes_ -= bytes;
}

bool Gpu::is_faulty(std::string_view name) {
  if (index_ != fault_.gpu || name != fault_.name) return false;
  const std::lock_guard lock(mutex_);
  return ++num_runs_ == fault_.number;
}

void Gpu::wait_to_begin(std::string_view name) {
  if (index_ != hold_.gpu || name != hold_.name) return;
  {
    const std::lock_guard lock(mutex_);
    if (++num_held_runs_ != hold_.number) return;
  }
  std::ifstream fifo(hold_fifo_);  // opens when its other end does
  fifo.ignore(std::numeric_limits<std::streamsize>::max());
}

void Gpu::add(CudaStream& stream) {
  const std::lock_guard lock(mutex_);
  streams_.insert(&stream);
}

void Gpu::remove(CudaStream& stream) {
  const std::lock_guard lock(mutex_);
  streams_.erase(&stream);
}

void Gpu::finish() {
  // Not under mutex_, which the streams' threads take for each kernel. A stream may be removed
  // meanwhile; its queue lives as long as it is held here.
  std::set<std::shared_ptr<StreamQueue>> queues;
  {
    const std::lock_guard lock(mutex_);
    for (CudaStream* stream : streams_) queues.insert(stream->work());
  }
  for (const auto& queue : queues) queue->finish();
}

}  // namespace quire::simulated
