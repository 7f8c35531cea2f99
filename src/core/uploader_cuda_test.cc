#include "core/uploader_cuda.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <thread>

#include "base/thread_pool.h"
#include "core/check_cuda.h"
#include "quire/error.h"

namespace quire {
namespace {

class UploaderTest : public testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
      GTEST_SKIP() << "There is no GPU, or no driver for it.";
    }
  }
};

std::vector<std::byte> random_bytes(size_t count) {
  std::minstd_rand random(static_cast<unsigned>(count));
  std::vector<std::byte> bytes(count);
  for (auto& byte : bytes) byte = static_cast<std::byte>(random() >> 8);
  return bytes;
}

struct DeviceMemoryOf {
  explicit DeviceMemoryOf(size_t bytes) {
    check_cuda(cudaMalloc(&data, bytes), "allocating a test's memory");
  }
  ~DeviceMemoryOf() { cudaFree(data); }
  std::byte* at(size_t offset) const { return static_cast<std::byte*>(data) + offset; }

  void* data = nullptr;
};

TEST_F(UploaderTest, CopiesPiecesOfAnySizeFromManyThreads) {
  const std::vector<size_t> sizes = {1,
                                     3,
                                     4096,
                                     Uploader::kSlotBytes - 1,
                                     Uploader::kSlotBytes,
                                     Uploader::kSlotBytes + 1,
                                     3 * Uploader::kSlotBytes + 5};
  constexpr int64_t kPieces = 150;  // more bytes than there is pinned memory
  std::vector<size_t> offsets{0};
  for (size_t i = 0; i < kPieces; ++i) offsets.push_back(offsets.back() + sizes[i % sizes.size()]);
  const std::vector<std::byte> expected = random_bytes(offsets.back());
  const DeviceMemoryOf memory(expected.size());
  check_cuda(cudaMemset(memory.data, 0xa5, expected.size()), "poisoning memory");

  Uploader uploader(0);
  ThreadPool pool(8);
  for (int repeat = 0; repeat < 2; ++repeat) {
    pool.parallel_for(kPieces, [&](int64_t piece, int) {
      const auto i = static_cast<size_t>(piece);
      const size_t bytes = offsets[i + 1] - offsets[i];
      uploader.upload(memory.at(offsets[i]), bytes, [&](std::byte* from) {
        std::memcpy(from, expected.data() + offsets[i], bytes);
      });
    });
    uploader.finish();
    std::vector<std::byte> copied(expected.size());
    check_cuda(cudaMemcpy(copied.data(), memory.data, copied.size(), cudaMemcpyDeviceToHost),
               "downloading");
    EXPECT_TRUE(copied == expected);
  }
}

TEST_F(UploaderTest, ComesAfterWhatIsQueuedOnTheDefaultStream) {
  constexpr size_t kBytes = size_t{1} << 30;
  const std::vector<std::byte> expected = random_bytes(1 << 20);
  const DeviceMemoryOf memory(kBytes);
  Uploader uploader(0);
  for (int i = 0; i < 20; ++i) check_cuda(cudaMemsetAsync(memory.data, i, kBytes), "clearing");
  uploader.upload(memory.at(kBytes - expected.size()), expected.size(),
                  [&](std::byte* from) { std::memcpy(from, expected.data(), expected.size()); });
  uploader.finish();
  std::vector<std::byte> copied(expected.size());
  check_cuda(cudaMemcpy(copied.data(), memory.at(kBytes - expected.size()), copied.size(),
                        cudaMemcpyDeviceToHost),
             "downloading");
  EXPECT_TRUE(copied == expected);
}

TEST_F(UploaderTest, FinishThrowsWhatWentWrong) {
  const DeviceMemoryOf memory(16);
  Uploader uploader(0);
  for (int i = 0; i < 100; ++i) {  // slots come back
    uploader.upload(memory.at(0), 16, [](std::byte*) { throw Error("the file ended"); });
  }
  try {
    uploader.finish();
    ADD_FAILURE() << "finish() did not throw";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()), "the file ended");
  }
  uploader.upload(memory.at(0), 16, [](std::byte* from) { std::memset(from, 7, 16); });
  uploader.finish();
  std::byte last = {};
  check_cuda(cudaMemcpy(&last, memory.at(15), 1, cudaMemcpyDeviceToHost), "downloading");
  EXPECT_EQ(last, std::byte{7});
}

}  // namespace
}  // namespace quire
