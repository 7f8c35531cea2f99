#pragma once
// Groups of ranks for the tests of dist/nccl_cuda.h. With a single GPU, ranks on one device check
// the kernels; NCCL is used only where each rank has a device of its own.
//
// Thread safety: a rank is its thread's.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/thread_pool.h"
#include "core/check_cuda.h"
#include "core/device_stream_cuda.h"
#include "core/stream.h"
#include "dist/nccl_cuda.h"
#include "quire/error.h"

namespace quire::nccl_test {

using Bytes = std::vector<std::byte>;

inline int num_gpus() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

// Collectives call no op, so the stream's table of ops is never used.
inline const ops::CudaKernels& no_kernels() {
  alignas(std::max_align_t) static constexpr std::byte kNothing = {};
  return reinterpret_cast<const ops::CudaKernels&>(kNothing);
}

// One rank in a test. It allocates device memory before the first collective and frees it when all
// ranks are done: freeing waits for the device, which may wait for another rank.
class Rank {
 public:
  Rank(Communicator& comm, int device, size_t bytes)
      : comm_(comm),
        queue_(make_cuda_device_stream(device)),
        stream_(pool_, {.type = DeviceType::kCuda, .index = device}, *queue_, no_kernels()) {
    check_cuda(cudaMalloc(&memory_, bytes), "allocating a test's memory");
  }
  ~Rank() { cudaFree(memory_); }

  Communicator& comm() { return comm_; }
  Stream& stream() { return stream_; }
  DeviceStream& queue() { return *queue_; }
  std::byte* memory() { return static_cast<std::byte*>(memory_); }

  // Copies of pageable memory wait for their stream and may keep others from launching, so call
  // this only while the rank waits for nothing.
  void upload(std::byte* to, const Bytes& bytes) {
    queue_->synchronize();
    check_cuda(cudaMemcpy(to, bytes.data(), bytes.size(), cudaMemcpyHostToDevice),
               "uploading a test's data");
    // The copy may still be under way, and the rank's stream does not wait for it.
    check_cuda(cudaStreamSynchronize(nullptr), "uploading a test's data");
  }
  void poison(std::byte* to, size_t bytes) {
    check_cuda(cudaMemsetAsync(to, 0xa5, bytes, stream_.cuda().get()), "poisoning an output");
  }
  Bytes download(size_t bytes, const std::byte* from) {
    Bytes result(bytes);
    queue_->synchronize();
    check_cuda(cudaMemcpy(result.data(), from, bytes, cudaMemcpyDeviceToHost),
               "downloading a test's data");
    return result;
  }

 private:
  Communicator& comm_;
  ThreadPool pool_{1};
  std::unique_ptr<DeviceStream> queue_;
  Stream stream_;
  void* memory_ = nullptr;
};

// Runs body(rank) on one thread for each rank, each with `bytes` of device memory. Returns the
// messages of what they threw.
inline std::vector<std::string> run_ranks(std::vector<std::unique_ptr<Communicator>> comms,
                                          const std::vector<int>& devices, size_t bytes,
                                          const std::function<void(Rank&)>& body) {
  std::vector<std::string> errors(comms.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < comms.size(); ++r) {
    threads.emplace_back([&, r] {
      Rank rank(*comms[r], devices[r], bytes);
      try {
        rank.comm().barrier();
        body(rank);
        rank.queue().synchronize();
        rank.comm().barrier();
      } catch (const Error& error) {
        errors[r] = error.what();
        rank.comm().abort();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return errors;
}

inline std::vector<std::string> run_ranks(const std::vector<int>& devices, size_t bytes,
                                          const std::function<void(Rank&)>& body) {
  return run_ranks(make_nccl_communicators(devices), devices, bytes, body);
}

struct Devices {
  std::string name;
  std::vector<int> indices;
};
inline void PrintTo(const Devices& devices, std::ostream* out) {
  *out << devices.name;
}

class NcclCommunicators : public testing::TestWithParam<Devices> {
 protected:
  void SetUp() override {
    for (const int device : GetParam().indices) {
      if (device >= num_gpus()) {
        GTEST_SKIP() << "There are " << num_gpus() << " GPUs; this takes " << device + 1
                     << " or more.";
      }
    }
  }
  const std::vector<int>& devices() const { return GetParam().indices; }
  int size() const { return static_cast<int>(devices().size()); }
  // Kernels that wait for each other have to fit their device at the same time; large blocks of
  // several ranks do not.
  size_t max_bytes() const {
    const bool is_one_device = devices()[0] == devices()[1];
    return is_one_device ? size_t{768} << 10 : size_t{1} << 30;
  }
  void run(size_t bytes, const std::function<void(Rank&)>& body) {
    for (const std::string& error : run_ranks(devices(), bytes, body)) EXPECT_EQ(error, "");
  }
};

inline Tensor vector_of(std::byte* data, DType dtype, size_t count) {
  return Tensor(data, dtype, {static_cast<int64_t>(count)});
}

inline float to_float(DType dtype, const std::byte* from) {
  float value = 0;
  if (dtype == DType::kFloat32) {
    std::memcpy(&value, from, sizeof(value));
  } else if (dtype == DType::kBFloat16) {
    BFloat16 half;
    std::memcpy(&half, from, sizeof(half));
    value = static_cast<float>(half);
  } else {
    Float16 half;
    std::memcpy(&half, from, sizeof(half));
    value = static_cast<float>(half);
  }
  return value;
}

inline void from_float(DType dtype, float value, std::byte* to) {
  if (dtype == DType::kFloat32) {
    std::memcpy(to, &value, sizeof(value));
  } else if (dtype == DType::kBFloat16) {
    const BFloat16 half(value);
    std::memcpy(to, &half, sizeof(half));
  } else {
    const Float16 half(value);
    std::memcpy(to, &half, sizeof(half));
  }
}

// Values of very different sizes, so that their sum depends on the order of addition.
inline Bytes random_elements(DType dtype, size_t count, unsigned seed) {
  std::minstd_rand random(seed * 7919 + 1);
  Bytes bytes(count * size_of(dtype));
  for (size_t i = 0; i < count; ++i) {
    const float value = static_cast<float>(random()) / 1073741824.0f - 1.0f;
    from_float(dtype, random() % 3 == 0 ? value * 1e3f : value, &bytes[i * size_of(dtype)]);
  }
  return bytes;
}

inline Bytes random_bytes(size_t count, unsigned seed) {
  std::minstd_rand random(seed * 104729 + 1);
  Bytes bytes(count);
  for (auto& byte : bytes) byte = static_cast<std::byte>(random() >> 8);
  return bytes;
}

// Bits that a floating point number would not keep on its way: words of ones among others.
inline Bytes random_bits(size_t count, unsigned seed) {
  Bytes bytes = random_bytes(count, seed);
  for (size_t at = 0; at + 8 <= count; at += 24)
    std::fill_n(bytes.begin() + at, 8, std::byte{0xff});
  return bytes;
}

inline Bytes random_content(DType dtype, size_t count, unsigned seed) {
  return is_floating(dtype) ? random_bytes(count, seed) : random_bits(count, seed);
}

}  // namespace quire::nccl_test
