#include "core/counting_memory.h"

#include <gtest/gtest.h>

#include "core/buffer.h"

namespace quire {
namespace {

TEST(CountingMemory, CountsWhatBuffersTake) {
  CountingMemory memory;
  const Device device{DeviceType::kCpu, 0, &memory};
  const Buffer some(1000, device);
  const Buffer huge(size_t{1} << 50, device);
  EXPECT_EQ(huge.size(), size_t{1} << 50);
  EXPECT_EQ(memory.taken(), 1000 + (size_t{1} << 50));
}

TEST(CountingMemoryDeathTest, IsNotThere) {
  CountingMemory memory;
  const Buffer buffer(64, {DeviceType::kCpu, 0, &memory});
  EXPECT_DEATH(*buffer.data() = std::byte{1}, "");
  std::byte value{};
  EXPECT_DEATH(memory.download(&value, buffer.data(), 1), "only counted");
}

}  // namespace
}  // namespace quire
