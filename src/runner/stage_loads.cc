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

}  // namespace

std::vector<std::byte> encode_stage_loads(std::span<const LoadOfStage> loads) {
  std::vector<std::byte> bytes;
  for (const auto& [stage, load] : loads) {
    put(bytes, stage);
    put(bytes, load.num_steps);
    put(bytes, std::llround(load.busy_s * kNanoseconds));
  }
  return bytes;
}

void take_stage_loads(std::span<const std::byte> bytes, std::span<StageLoad> stages) {
  if (bytes.size() % kLoadBytes != 0) return;
  for (; !bytes.empty(); bytes = bytes.subspan(kLoadBytes)) {
    const auto stage = static_cast<uint64_t>(number_at(bytes, 0));
    const int64_t num_steps = number_at(bytes, 1);
    const int64_t busy_ns = number_at(bytes, 2);
    if (stage >= stages.size() || num_steps < 0 || busy_ns < 0) continue;
    stages[stage] = {.num_steps = num_steps, .busy_s = static_cast<double>(busy_ns) / kNanoseconds};
  }
}

}  // namespace quire
