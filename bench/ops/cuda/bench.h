#pragma once
// What the benches of the CUDA kernels share.
//
//   cuda_bench [--json] [substring]    runs the cases whose names contain the substring
//
// First the ceilings of this very run are measured: a copy in device memory, and a bf16 matrix
// product. Each case is then a line with its time and its share of the ceiling that bounds it. A
// file of benches makes one BenchGroup, whose function times its cases:
//
//   void run(CudaBench& bench) {
//     const int num_sets = bench.sets_for(2 * bytes);      // more than the L2 cache holds
//     std::vector<DeviceBuffer> in, out;                   // num_sets of each
//     ...
//     bench.time("copy/4096", {.bytes = 2.0 * bytes}, num_sets, [&](int set) { ... launch ... });
//   }
//   const BenchGroup group("copy", run);
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/stream_cuda.h"

namespace quire::bench {

// Device memory that holds random data: zeros run faster.
class DeviceBuffer {
 public:
  // Uniform between -scale and scale.
  DeviceBuffer(DType dtype, int64_t count, float scale = 1.0f);
  static DeviceBuffer of_bytes(size_t size);  // all zero
  template <typename T>
  static DeviceBuffer of(const std::vector<T>& values) {
    DeviceBuffer buffer = of_bytes(values.size() * sizeof(T));
    buffer.upload(values.data(), values.size() * sizeof(T));
    return buffer;
  }
  ~DeviceBuffer();
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  void* data() const { return data_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  explicit DeviceBuffer(size_t size);
  void upload(const void* values, size_t size);

  void* data_ = nullptr;
};

// What one launch has to do at least.
struct Work {
  double bytes = 0;  // read and written
  double flops = 0;
};

class CudaBench {
 public:
  // Measures the ceilings.
  CudaBench(std::string_view filter, bool json);

  CudaStream& stream() { return stream_; }
  bool wants(std::string_view name) const;
  // Whether any case was.
  bool has_reported() const { return has_reported_; }
  // How many sets of buffers, each of this many bytes, to rotate among so that none is found in the
  // L2 cache.
  int sets_for(double bytes) const;
  // Times launch(set), which queues work on stream(), for set = 0, 1, ... num_sets - 1 and again,
  // in the replay of a CUDA graph, and prints the median of the time per launch. Returns it in
  // microseconds; 0 where the filter leaves the case out.
  double time(const std::string& name, const Work& work, int num_sets,
              const std::function<void(int set)>& launch);
  // The same without a line.
  double microseconds_of(int num_sets, const std::function<void(int set)>& launch);

 private:
  double measure(int num_launches, const std::function<void(int)>& launch);  // microseconds each
  double copy_gb_s();
  double gemm_tflop_s();
  void report(const std::string& name, const Work& work, double microseconds);

  CudaStream stream_{0};
  std::string filter_;
  bool json_;
  bool has_reported_ = false;
  double copy_gb_s_;
  double gemm_tflop_s_;
};

// Made at namespace scope; main() runs all.
class BenchGroup {
 public:
  BenchGroup(std::string_view name, void (*run)(CudaBench&));
};

}  // namespace quire::bench
