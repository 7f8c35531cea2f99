#include "runner/stage_loads.h"

#include <cmath>
#include <cstdint>

namespace quire {
namespace {

constexpr size_t kNumberBytes = 8;
constexpr size_t kLoadBytes = 3 * kNumberBytes;
constexpr double kNanoseconds = 1e9;  // of a second

void put(std::vector<std::byte>& bytes, int64_t number) {
  for (size_t i = 0; i < kNumberBytes; ++i) {
    bytes.push_back(static_cast<std::byte>(static_cast<uint64_t>(number) >> (8 * i)));
  }
}

int64_t number_at(std::span<const std::byte> bytes, size_t index) {
  uint64_t number = 0;
  for (size_t i = 0; i < kNumberBytes; ++i) {
    number |= static_cast<uint64_t>(bytes[index * kNumberBytes + i]) << (8 * i);
  }
  return static_cast<int64_t>(number);
}

// Whether encode_stage_loads() writes so many bytes.
bool is_written(std::span<const std::byte> bytes) {
  return bytes.size() % kLoadBytes == kNumberBytes;
}

}  // namespace

std::vector<std::byte> encode_stage_loads(uint64_t progress, std::span<const LoadOfStage> loads) {
  std::vector<std::byte> bytes;
  put(bytes, static_cast<int64_t>(progress));
  for (const auto& [stage, load] : loads) {
    put(bytes, stage);
    put(bytes, load.num_steps);
    put(bytes, std::llround(load.busy_s * kNanoseconds));
  }
  return bytes;
}

uint64_t progress_in(std::span<const std::byte> bytes) {
  return is_written(bytes) ? static_cast<uint64_t>(number_at(bytes, 0)) : 0;
}

void take_stage_loads(std::span<const std::byte> bytes, std::span<StageLoad> stages) {
  if (!is_written(bytes)) return;
  for (bytes = bytes.subspan(kNumberBytes); !bytes.empty(); bytes = bytes.subspan(kLoadBytes)) {
    const auto stage = static_cast<uint64_t>(number_at(bytes, 0));
    const int64_t num_steps = number_at(bytes, 1);
    const int64_t busy_ns = number_at(bytes, 2);
    if (stage >= stages.size() || num_steps < 0 || busy_ns < 0) continue;
    stages[stage] = {.num_steps = num_steps, .busy_s = static_cast<double>(busy_ns) / kNanoseconds};
  }
}

}  // namespace quire
