#include "bench.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>
#include <random>
#include <utility>

#include "core/check_cuda.h"

namespace quire::bench {
namespace {

struct Group {
  std::string_view name;
  void (*run)(CudaBench&);
};

std::vector<Group>& groups() {
  static std::vector<Group> all;
  return all;
}

// Not a power of two, so that rows of matrices do not repeat each other.
constexpr int64_t kPatternValues = 1'000'003;

std::vector<std::byte> random_pattern(DType dtype, int64_t count, float scale) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-scale, scale);
  std::vector<std::byte> bytes(static_cast<size_t>(count) * size_of(dtype));
  const auto put = [&bytes](int64_t i, auto value) {
    std::memcpy(&bytes[static_cast<size_t>(i) * sizeof(value)], &value, sizeof(value));
  };
  for (int64_t i = 0; i < count; ++i) {
    switch (dtype) {
      case DType::kBFloat16:
        put(i, BFloat16(uniform(random)));
        break;
      case DType::kFloat16:
        put(i, Float16(uniform(random)));
        break;
      case DType::kFloat32:
        put(i, uniform(random));
        break;
      case DType::kFloat8E4M3:
        // Either sign, magnitudes from 2^-7 to 1.875.
        put(i, static_cast<uint8_t>((random() & 0x80u) | random() % 0x40u));
        break;
      default:
        put(i, static_cast<uint8_t>(random()));
    }
  }
  return bytes;
}

class Event {
 public:
  Event() { check_cuda(cudaEventCreate(&event_), "making an event"); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

class Graph {
 public:
  // Of what `body` queues on the stream.
  template <typename Body>
  Graph(cudaStream_t stream, const Body& body) : stream_(stream) {
    check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
               "starting to capture a graph");
    body();
    cudaGraph_t graph = nullptr;
    check_cuda(cudaStreamEndCapture(stream, &graph), "capturing a graph");
    const cudaError_t status = cudaGraphInstantiate(&graph_, graph, 0);
    cudaGraphDestroy(graph);
    check_cuda(status, "instantiating a graph");
  }
  ~Graph() { cudaGraphExecDestroy(graph_); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void replay() { check_cuda(cudaGraphLaunch(graph_, stream_), "replaying a graph"); }

 private:
  cudaStream_t stream_;
  cudaGraphExec_t graph_ = nullptr;
};

// Milliseconds that what `body` queues takes on the device.
template <typename Body>
double time_once(cudaStream_t stream, const Body& body) {
  Event begin;
  Event end;
  check_cuda(cudaEventRecord(begin.get(), stream), "timing a kernel");
  body();
  check_cuda(cudaEventRecord(end.get(), stream), "timing a kernel");
  check_cuda(cudaEventSynchronize(end.get()), "running a kernel");
  float milliseconds = 0;
  check_cuda(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()), "timing a kernel");
  return static_cast<double>(milliseconds);
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// out[n, n] = a * b of bfloat16 matrices, by cuBLAS's own choice of algorithm.
class SquareProduct {
 public:
  SquareProduct(CudaStream& stream, int64_t n)
      : stream_(stream),
        a_(DType::kBFloat16, n * n),
        b_(DType::kBFloat16, n * n),
        out_(DType::kBFloat16, n * n) {
    check_cublas(cublasLtMatmulDescCreate(&product_, CUBLAS_COMPUTE_32F, CUDA_R_32F),
                 "describing a matrix product");
    const cublasOperation_t transposed = CUBLAS_OP_T;
    check_cublas(cublasLtMatmulDescSetAttribute(product_, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                                sizeof(transposed)),
                 "describing a matrix product");
    check_cublas(cublasLtMatrixLayoutCreate(&layout_, CUDA_R_16BF, static_cast<uint64_t>(n),
                                            static_cast<uint64_t>(n), n),
                 "describing a matrix");
    cublasLtMatmulPreference_t preference = nullptr;
    check_cublas(cublasLtMatmulPreferenceCreate(&preference), "choosing an algorithm");
    const size_t workspace = CudaStream::kWorkspaceBytes;
    check_cublas(
        cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                             &workspace, sizeof(workspace)),
        "choosing an algorithm");
    int found = 0;
    check_cublas(cublasLtMatmulAlgoGetHeuristic(stream.cublas(), product_, layout_, layout_,
                                                layout_, layout_, preference, 1, &choice_, &found),
                 "choosing an algorithm");
    cublasLtMatmulPreferenceDestroy(preference);
  }
  ~SquareProduct() {
    cublasLtMatrixLayoutDestroy(layout_);
    cublasLtMatmulDescDestroy(product_);
  }
  SquareProduct(const SquareProduct&) = delete;
  SquareProduct& operator=(const SquareProduct&) = delete;

  void launch() {
    const float one = 1;
    const float zero = 0;
    check_cublas(
        cublasLtMatmul(stream_.cublas(), product_, &one, a_.data(), layout_, b_.data(), layout_,
                       &zero, out_.data(), layout_, out_.data(), layout_, &choice_.algo,
                       stream_.cublas_workspace(), CudaStream::kWorkspaceBytes, stream_.get()),
        "multiplying matrices");
  }

 private:
  CudaStream& stream_;
  DeviceBuffer a_, b_, out_;
  cublasLtMatmulDesc_t product_ = nullptr;
  cublasLtMatrixLayout_t layout_ = nullptr;
  cublasLtMatmulHeuristicResult_t choice_ = {};
};

}  // namespace

DeviceBuffer::DeviceBuffer(size_t size) {
  check_cuda(cudaMalloc(&data_, std::max<size_t>(size, 1)), "allocating a bench's buffer");
}

DeviceBuffer::DeviceBuffer(DType dtype, int64_t count, float scale)
    : DeviceBuffer(static_cast<size_t>(count) * size_of(dtype)) {
  const int64_t first = std::min(count, kPatternValues);
  const std::vector<std::byte> pattern = random_pattern(dtype, first, scale);
  upload(pattern.data(), pattern.size());
  const size_t total = static_cast<size_t>(count) * size_of(dtype);
  for (size_t done = pattern.size(); done < total;) {
    const size_t size = std::min(done, total - done);
    check_cuda(cudaMemcpy(as<std::byte>() + done, data_, size, cudaMemcpyDeviceToDevice),
               "filling a bench's buffer");
    done += size;
  }
  check_cuda(cudaDeviceSynchronize(), "filling a bench's buffer");
}

DeviceBuffer DeviceBuffer::of_bytes(size_t size) {
  DeviceBuffer buffer(size);
  check_cuda(cudaMemset(buffer.data_, 0, size), "clearing a bench's buffer");
  check_cuda(cudaDeviceSynchronize(), "clearing a bench's buffer");
  return buffer;
}

DeviceBuffer::~DeviceBuffer() {
  cudaFree(data_);
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)) {}

void DeviceBuffer::upload(const void* values, size_t size) {
  check_cuda(cudaMemcpy(data_, values, size, cudaMemcpyHostToDevice), "uploading a bench's data");
  check_cuda(cudaDeviceSynchronize(), "uploading a bench's data");
}

CudaBench::CudaBench(std::string_view filter, bool json)
    : filter_(filter), json_(json), copy_gb_s_(copy_gb_s()), gemm_tflop_s_(gemm_tflop_s()) {
  if (json_) {
    fmt::print("{{\"copy_gb_s\": {:.0f}, \"gemm_tflop_s\": {:.1f}}}\n", copy_gb_s_, gemm_tflop_s_);
  } else {
    fmt::print("ceilings: copy {:.0f} GB/s, bf16 matrix product {:.0f} TFLOP/s\n", copy_gb_s_,
               gemm_tflop_s_);
  }
}

bool CudaBench::wants(std::string_view name) const {
  return name.find(filter_) != std::string_view::npos;
}

int CudaBench::sets_for(double bytes) const {
  constexpr double kMostSets = 512;
  const double needed = std::ceil(3.0 * static_cast<double>(stream_.l2_bytes()) / bytes);
  return static_cast<int>(std::clamp(needed, 1.0, kMostSets));
}

double CudaBench::time(const std::string& name, const Work& work, int num_sets,
                       const std::function<void(int)>& launch) {
  if (!wants(name)) return 0;
  const double microseconds = microseconds_of(num_sets, launch);
  report(name, work, microseconds);
  return microseconds;
}

double CudaBench::microseconds_of(int num_sets, const std::function<void(int)>& launch) {
  launch(0);  // loads the kernel
  const double once = time_once(stream_.get(), [&] { launch(0); });
  // Enough launches in a graph that its own start is nothing beside them.
  constexpr double kReplayMilliseconds = 3;
  constexpr double kMostLaunches = 512;
  const double wanted = std::clamp(kReplayMilliseconds / once, 1.0, kMostLaunches);
  const int rounds = std::max(1, static_cast<int>(std::lround(wanted / num_sets)));
  return measure(rounds * num_sets, [&](int i) { launch(i % num_sets); });
}

double CudaBench::measure(int num_launches, const std::function<void(int)>& launch) {
  Graph graph(stream_.get(), [&] {
    for (int i = 0; i < num_launches; ++i) launch(i);
  });
  graph.replay();
  std::vector<double> times;
  for (int i = 0; i < 11; ++i) {
    times.push_back(time_once(stream_.get(), [&] { graph.replay(); }));
  }
  return median(times) * 1e3 / num_launches;
}

// Not in a graph: there the driver may hand copies to an engine that is slower than the kernel.
double CudaBench::copy_gb_s() {
  constexpr int64_t kBytes = int64_t{2} << 30;
  const DeviceBuffer from(DType::kBFloat16, kBytes / 2);
  const DeviceBuffer to = DeviceBuffer::of_bytes(kBytes);
  std::vector<double> times;
  for (int i = 0; i < 11; ++i) {
    times.push_back(time_once(stream_.get(), [&] {
      check_cuda(
          cudaMemcpyAsync(to.data(), from.data(), kBytes, cudaMemcpyDeviceToDevice, stream_.get()),
          "copying on the device");
    }));
  }
  return 2.0 * static_cast<double>(kBytes) / median(times) * 1e-6;
}

double CudaBench::gemm_tflop_s() {
  constexpr int64_t kSize = 8192;
  SquareProduct product(stream_, kSize);
  product.launch();
  const double microseconds = measure(2, [&](int) { product.launch(); });
  return 2.0 * std::pow(static_cast<double>(kSize), 3) / microseconds * 1e-6;
}

void CudaBench::report(const std::string& name, const Work& work, double microseconds) {
  has_reported_ = true;
  const double gb_s = work.bytes / microseconds * 1e-3;
  const double tflop_s = work.flops / microseconds * 1e-6;
  const double share_of_copy = gb_s / copy_gb_s_;
  const double share_of_gemm = tflop_s / gemm_tflop_s_;
  const bool by_memory = share_of_copy >= share_of_gemm;
  const double percent = 100 * std::max(share_of_copy, share_of_gemm);
  if (json_) {
    fmt::print(
        "{{\"name\": \"{}\", \"us\": {:.3f}, \"gb_s\": {:.1f}, \"tflop_s\": {:.2f}, "
        "\"percent\": {:.1f}, \"of\": \"{}\"}}\n",
        name, microseconds, gb_s, tflop_s, percent, by_memory ? "copy" : "gemm");
  } else {
    fmt::print("{:<52} {:>10.2f} us {:>8.1f} {:<7} {:>5.1f} %\n", name, microseconds,
               by_memory ? gb_s : tflop_s, by_memory ? "GB/s" : "TFLOP/s", percent);
  }
  std::fflush(stdout);
}

BenchGroup::BenchGroup(std::string_view name, void (*run)(CudaBench&)) {
  groups().push_back({name, run});
}

}  // namespace quire::bench

int main(int argc, char** argv) {
  using namespace quire::bench;
  bool json = false;
  std::string_view filter;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--json") {
      json = true;
    } else {
      filter = argv[i];
    }
  }
  try {
    CudaBench bench(filter, json);
    auto& all = groups();
    std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    for (const auto& group : all) group.run(bench);
    if (!bench.has_reported()) {
      fmt::print(stderr, "cuda_bench: no benchmark has \"{}\" in its name.\n", filter);
      return 1;
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "cuda_bench: {}\n", error.what());
    return 1;
  }
  return 0;
}
