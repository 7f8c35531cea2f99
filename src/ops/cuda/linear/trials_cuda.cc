// Times the algorithms that cuBLAS's heuristics name for a product (ops/cuda/kernels.h): for
// `quire tune`, never while an engine runs.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "base/check.h"
#include "core/check_cuda.h"
#include "ops/cuda/linear/cublas_cuda.h"

namespace quire::ops::cuda {
namespace {

class Event {
 public:
  Event() { check_cuda(cudaEventCreate(&event_), "making an event"); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record(CudaStream& stream) {
    check_cuda(cudaEventRecord(event_, stream.get()), "recording an event");
  }
  double seconds_to(const Event& end) const {
    check_cuda(cudaEventSynchronize(end.event_), "timing a kernel");
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, event_, end.event_), "timing a kernel");
    return 1e-3 * static_cast<double>(milliseconds);
  }

 private:
  cudaEvent_t event_ = nullptr;
};

// Seconds that what `queue` queues takes on the device.
template <typename Queue>
double time_once(CudaStream& stream, const Queue& queue) {
  Event begin;
  Event end;
  begin.record(stream);
  queue();
  end.record(stream);
  return begin.seconds_to(end);
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Work that was captured from a stream: launched one by one, the host would be slower than kernels
// of a few microseconds.
class Graph {
 public:
  template <typename Queue>
  Graph(CudaStream& stream, const Queue& queue) : stream_(&stream) {
    check_cuda(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal),
               "capturing a CUDA graph");
    cudaGraph_t graph = nullptr;
    try {
      queue();
    } catch (...) {
      // Else the stream would go on capturing. What this says matters less than what was thrown.
      cudaStreamEndCapture(stream.get(), &graph);
      if (graph != nullptr) cudaGraphDestroy(graph);
      throw;
    }
    check_cuda(cudaStreamEndCapture(stream.get(), &graph), "capturing a CUDA graph");
    const cudaError_t status = cudaGraphInstantiate(&executable_, graph, 0);
    cudaGraphDestroy(graph);
    check_cuda(status, "making a CUDA graph");
  }
  ~Graph() {
    if (executable_ != nullptr) cudaGraphExecDestroy(executable_);
  }
  Graph(Graph&& other) noexcept
      : stream_(other.stream_), executable_(std::exchange(other.executable_, nullptr)) {}
  Graph& operator=(Graph&&) = delete;
  void launch() {
    check_cuda(cudaGraphLaunch(executable_, stream_->get()), "launching a CUDA graph");
  }

 private:
  CudaStream* stream_;
  cudaGraphExec_t executable_ = nullptr;
};

// The outputs that are looked at: rows spread over all of them, each at another place of a tile.
class Sample {
 public:
  explicit Sample(const CudaLinear& product) : product_(product) {
    constexpr int64_t kMostRows = 61;  // odd strides where there are more: other places of tiles
    const int64_t step = std::max<int64_t>(1, product.rows / kMostRows) | 1;
    for (int64_t row = 0; row < product.rows; row += step) rows_.push_back(row);
    if (rows_.back() != product.rows - 1) rows_.push_back(product.rows - 1);
  }

  // Makes all outputs NaN, so that one that is not written shows.
  void poison(CudaStream& stream) const {
    constexpr int kAllBits = 0xff;
    const int64_t elements = (product_.rows - 1) * product_.out_stride + product_.n;
    check_cuda(
        cudaMemsetAsync(product_.out, kAllBits,
                        static_cast<size_t>(elements) * size_of(product_.out_dtype), stream.get()),
        "clearing the outputs of a product");
  }

  std::vector<std::byte> read(CudaStream& stream) const {
    const size_t row_bytes = static_cast<size_t>(product_.n) * size_of(product_.out_dtype);
    std::vector<std::byte> bytes(rows_.size() * row_bytes);
    for (size_t i = 0; i < rows_.size(); ++i) {
      const size_t offset = static_cast<size_t>(rows_[i] * product_.out_stride);
      check_cuda(cudaMemcpyAsync(&bytes[i * row_bytes],
                                 static_cast<const std::byte*>(product_.out) +
                                     offset * size_of(product_.out_dtype),
                                 row_bytes, cudaMemcpyDeviceToHost, stream.get()),
                 "reading the outputs of a product");
    }
    check_cuda(cudaStreamSynchronize(stream.get()), "multiplying matrices");
    return bytes;
  }

 private:
  CudaLinear product_;
  std::vector<int64_t> rows_;
};

template <typename T>
double error_between(const std::vector<std::byte>& actual, const std::vector<std::byte>& expected) {
  double error = 0;
  double norm = 0;
  for (size_t i = 0; i < actual.size(); i += sizeof(T)) {
    T a;
    T b;
    std::memcpy(&a, &actual[i], sizeof(T));
    std::memcpy(&b, &expected[i], sizeof(T));
    const double value = static_cast<double>(static_cast<float>(b));
    const double difference = static_cast<double>(static_cast<float>(a)) - value;
    error += difference * difference;
    norm += value * value;
  }
  const double relative = std::sqrt(error / norm);
  return std::isfinite(relative) ? relative : std::numeric_limits<double>::infinity();
}

// ||actual - expected|| / ||expected||; infinite where that is no number.
double relative_error(DType dtype, const std::vector<std::byte>& actual,
                      const std::vector<std::byte>& expected) {
  switch (dtype) {
    case DType::kBFloat16:
      return error_between<BFloat16>(actual, expected);
    case DType::kFloat16:
      return error_between<Float16>(actual, expected);
    default:
      return error_between<float>(actual, expected);
  }
}

class Trials {
 public:
  Trials(CudaStream& stream, const CudaLinearTrials& args)
      : stream_(stream),
        args_(args),
        product_(stream, args.product, args.bias),
        sample_(args.product) {
    for (const cublasLtMatmulAlgo_t& named : product_.heuristics(args.max_algorithms)) {
      add(named);
    }
  }

  std::vector<LinearTrial> run() {
    check_results();
    measure();
    return std::move(trials_);
  }

 private:
  // What is tried is what a table's entry would give, not what cuBLAS knows of the algorithm beside
  // that; but the first stays what runs without a table.
  void add(const cublasLtMatmulAlgo_t& named) {
    const std::optional<LinearAlgorithm> description = describe(named);
    if (algorithms_.empty()) {
      algorithms_.push_back(named);
      trials_.push_back({description.value_or(LinearAlgorithm()), 0, 0, false});
      return;
    }
    if (!description || !sums_in_float32(*description)) return;
    const auto configured = product_.configure(*description);
    if (!configured) return;
    algorithms_.push_back(*configured);
    trials_.push_back({*description, 0, 0, false});
  }

  std::vector<std::byte> outputs_of(const cublasLtMatmulAlgo_t& algorithm) {
    sample_.poison(stream_);
    product_.run(algorithm);
    return sample_.read(stream_);
  }

  void check_results() {
    const std::vector<std::byte> first = outputs_of(algorithms_.front());
    for (size_t i = 0; i < algorithms_.size(); ++i) {
      const std::vector<std::byte> outputs = outputs_of(algorithms_[i]);
      trials_[i].error = relative_error(args_.product.out_dtype, outputs, first);
      trials_[i].repeats = outputs == outputs_of(algorithms_[i]);
    }
  }

  const void* weight(int64_t index) const {
    const auto offset = static_cast<size_t>(index % args_.num_weights * args_.weight_stride);
    return static_cast<const std::byte*>(args_.product.weight.data) +
           offset * size_of(args_.product.dtype);
  }

  void queue(const cublasLtMatmulAlgo_t& algorithm, int64_t runs) const {
    for (int64_t i = 0; i < runs; ++i) product_.run(algorithm, weight(i));
  }

  // Runs in a measurement: as many of each weight, and long enough that beginning and end are
  // nothing beside them.
  int64_t runs_of_a_measurement() const {
    constexpr double kSeconds = 2e-3;
    constexpr double kMostRuns = 512;
    const double once = time_once(stream_, [&] { queue(algorithms_.front(), args_.num_weights); });
    const double rounds =
        std::min(kSeconds / once, kMostRuns / static_cast<double>(args_.num_weights));
    return args_.num_weights * std::max<int64_t>(1, std::llround(rounds));
  }

  // Algorithms take turns, so that a clock that changes meanwhile changes for all of them.
  void measure() {
    const int64_t runs = runs_of_a_measurement();
    std::vector<Graph> graphs;
    for (const auto& algorithm : algorithms_) {
      graphs.emplace_back(stream_, [&] { queue(algorithm, runs); });
      graphs.back().launch();
    }
    std::vector<std::vector<double>> seconds(algorithms_.size());
    for (int repeat = 0; repeat < args_.repeats; ++repeat) {
      for (size_t i = 0; i < algorithms_.size(); ++i) {
        seconds[i].push_back(time_once(stream_, [&] { graphs[i].launch(); }));
      }
    }
    for (size_t i = 0; i < algorithms_.size(); ++i) {
      trials_[i].seconds = median(seconds[i]) / static_cast<double>(runs);
    }
  }

  CudaStream& stream_;
  CudaLinearTrials args_;
  CublasLinear product_;
  Sample sample_;
  std::vector<cublasLtMatmulAlgo_t> algorithms_;
  std::vector<LinearTrial> trials_;  // of algorithms_
};

}  // namespace

std::vector<LinearTrial> try_linear_algorithms(CudaStream& stream, const CudaLinearTrials& args) {
  check(args.product.rows > 0 && args.product.n > 0, "a product that is timed has outputs");
  check(args.num_weights > 0 && args.max_algorithms > 0 && args.repeats > 0,
        "there is something to time");
  return Trials(stream, args).run();
}

double time_copy(CudaStream& stream, const CudaCopy& args) {
  std::vector<double> seconds;
  for (int i = 0; i < args.repeats; ++i) {
    seconds.push_back(time_once(stream, [&] {
      check_cuda(cudaMemcpyAsync(args.to, args.from, static_cast<size_t>(args.bytes),
                                 cudaMemcpyDeviceToDevice, stream.get()),
                 "copying on the device");
    }));
  }
  return median(seconds);
}

}  // namespace quire::ops::cuda
