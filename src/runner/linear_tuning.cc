#include "runner/linear_tuning.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "base/check.h"
#include "models/counted_model.h"
#include "ops/cuda/linear/algorithms_file.h"
#include "quire/error.h"
#include "quire/version.h"
#include "runner/gpu_algorithms.h"
#include "runner/gpu_batch.h"
#include "runner/tuning_memory.h"

namespace quire {
namespace {

// Medians of repeated measurements differ by this without a reason.
constexpr double kLeastGain = 0.02;
// Relative to the norm of the outputs: sums in another order, before and after they are rounded to
// 16 bits.
constexpr double kFloatTolerance = 2e-5;
constexpr double kHalfTolerance = 5e-3;
// The product whose speed is the ceiling for the others: rows, n and k.
constexpr int64_t kPeakSize = 8192;

double flops_of(const ops::LinearShape& shape) {
  return 2.0 * static_cast<double>(shape.rows) * static_cast<double>(shape.n) *
         static_cast<double>(shape.k);
}

double bytes_of(const ops::LinearShape& shape) {
  const auto rows = static_cast<double>(shape.rows);
  const auto n = static_cast<double>(shape.n);
  const auto k = static_cast<double>(shape.k);
  return (n * k + rows * k) * static_cast<double>(size_of(shape.dtype)) +
         rows * n * static_cast<double>(size_of(shape.out_dtype));
}

// The reason, for a request without a task.
std::string why_nothing_is_timed(const TuningRequest& request) {
  const auto num_possible =
      std::count_if(request.rows.begin(), request.rows.end(),
                    [&](int64_t rows) { return rows <= request.max_step_tokens; });
  if (num_possible == 0 && !request.rows.empty()) {
    return fmt::format(
        "A step of this engine has at most {} rows, and every number of --rows is above that; "
        "choose smaller ones, or a larger --max-num-batched-tokens.",
        request.max_step_tokens);
  }
  const std::vector<MatrixProduct> products = CountedModel(request.model).model().products();
  if (!std::all_of(products.begin(), products.end(),
                   [](const MatrixProduct& product) { return product.format.is_dense(); })) {
    return fmt::format(
        "No matrix product of this model is tuned with these numbers of rows: those with "
        "quantised weights never are, and quire's own kernels take the others; choose larger "
        "--rows, up to "
        "the {} of a step, or for the output layer {}.",
        request.max_step_tokens, request.max_logits_rows);
  }
  return fmt::format(
      "None of this model's matrix products goes to cuBLAS with these numbers of rows: quire's own "
      "kernels take them all; choose larger --rows, up to the {} of a step.",
      request.max_step_tokens);
}

class Tuning {
 public:
  Tuning(DeviceLibrary& library, const TuningRequest& request, const TuneOptions& options)
      : library_(library),
        request_(request),
        options_(options),
        gpu_(library.devices().front()),
        stream_(library.make_stream(0, nullptr)) {}

  TuneResult run(const TuneCallback& on_progress);

 private:
  std::vector<TuningTask> plan() const;
  void check_plan(const std::vector<TuningTask>& tasks) const;
  ops::LinearShape peak_shape() const;
  std::vector<ops::LinearTrial> try_algorithms(const TuningTask& task) const;
  void measure_ceilings(TuneResult& result) const;
  void measure(const TuningTask& task, TuneResult& result);

  DeviceLibrary& library_;
  const TuningRequest& request_;
  const TuneOptions& options_;
  DeviceInfo gpu_;
  std::unique_ptr<DeviceStream> stream_;
  std::unique_ptr<TuningMemory> memory_;
  std::vector<ops::LinearAlgorithmEntry> entries_;
};

std::vector<TuningTask> Tuning::plan() const {
  return plan_tuning(request_, kind_of(gpu_), [&](const MatrixProduct& product, int64_t rows) {
    ops::CudaLinear args = {};
    args.dtype = request_.model.dtype;
    args.in_stride = product.k;
    args.rows = rows;
    args.n = product.n;
    args.k = product.k;
    args.out_stride = product.n;
    args.out_dtype = product.is_logits ? DType::kFloat32 : args.dtype;
    args.silu_and_mul = product.is_gated;
    return library_.kernels().linear_cublas_rows(stream_->cuda(), args);
  });
}

ops::LinearShape Tuning::peak_shape() const {
  const DType dtype = request_.model.dtype;
  return {kind_of(gpu_), dtype, dtype, kPeakSize, kPeakSize, kPeakSize};
}

// To be called before anything is measured, because that would be lost.
void Tuning::check_plan(const std::vector<TuningTask>& tasks) const {
  if (tasks.empty()) throw Error(why_nothing_is_timed(request_));
  std::set<ops::LinearShape> shapes;
  for (const TuningTask& task : tasks) shapes.insert(task.shape);
  for (const ops::LinearAlgorithmEntry& entry : request_.known) shapes.insert(entry.shape);
  if (shapes.size() > ops::kMaxLinearAlgorithms) {
    throw Error(fmt::format(
        "This would give {} shapes, {} of them from --linear-algorithms, and a file holds at most "
        "{}; choose fewer --rows.",
        shapes.size(), request_.known.size(), ops::kMaxLinearAlgorithms));
  }
}

std::vector<ops::LinearTrial> Tuning::try_algorithms(const TuningTask& task) const {
  ops::CudaLinearTrials trials = memory_->trials_of(task.shape, task.has_bias);
  trials.max_algorithms = options_.max_algorithms;
  trials.repeats = options_.repeats;
  return library_.kernels().try_linear_algorithms(stream_->cuda(), trials);
}

void Tuning::measure_ceilings(TuneResult& result) const {
  const ops::LinearShape shape = peak_shape();
  const std::vector<ops::LinearTrial> trials = try_algorithms({.name = "peak", .shape = shape});
  result.peak_flops_per_s = flops_of(shape) / trials[choose_trial(trials, shape.out_dtype)].seconds;
  ops::CudaCopy copy = memory_->copy();
  copy.repeats = options_.repeats;
  const double copy_s = library_.kernels().time_copy(stream_->cuda(), copy);
  result.copy_bytes_per_s = 2 * static_cast<double>(copy.bytes) / copy_s;
}

void Tuning::measure(const TuningTask& task, TuneResult& result) {
  const std::vector<ops::LinearTrial> trials = try_algorithms(task);
  const size_t choice = choose_trial(trials, task.shape.out_dtype);
  entries_.push_back({task.shape, std::nullopt});
  if (choice != 0) entries_.back().algorithm = trials[choice].algorithm;
  result.products.push_back({.name = task.name,
                             .n = task.shape.n,
                             .k = task.shape.k,
                             .rows = task.shape.rows,
                             .dtype = std::string(name_of(task.shape.dtype)),
                             .out_dtype = std::string(name_of(task.shape.out_dtype)),
                             .num_algorithms = static_cast<int>(trials.size()),
                             .choice = static_cast<int>(choice),
                             .first_s = trials.front().seconds,
                             .best_s = trials[choice].seconds,
                             .flops = flops_of(task.shape),
                             .bytes = bytes_of(task.shape)});
}

TuneResult Tuning::run(const TuneCallback& on_progress) {
  const std::vector<TuningTask> tasks = plan();
  check_plan(tasks);
  std::vector<ops::LinearShape> shapes = {peak_shape()};
  for (const TuningTask& task : tasks) shapes.push_back(task.shape);
  TuneResult result;
  result.device_name = gpu_.name;
  result.compute_capability = gpu_.compute_capability;
  result.num_multiprocessors = gpu_.num_multiprocessors;
  const auto num_all = static_cast<int64_t>(tasks.size()) + 1;
  result.is_complete = on_progress(0, num_all, "the GPU's limits");
  if (result.is_complete) {
    memory_ = std::make_unique<TuningMemory>(library_, gpu_, shapes);
    measure_ceilings(result);
  }
  for (size_t i = 0; i < tasks.size() && result.is_complete; ++i) {
    result.is_complete =
        on_progress(static_cast<int64_t>(i) + 1, num_all,
                    fmt::format("{}, {} rows", tasks[i].name, tasks[i].shape.rows));
    if (result.is_complete) measure(tasks[i], result);
  }
  result.file = ops::linear_algorithms_text(ops::merge_linear_algorithms(request_.known, entries_),
                                            fmt::format("quire {} on {}", version(), gpu_.name));
  return result;
}

}  // namespace

std::vector<int64_t> default_tune_rows() {
  constexpr int64_t kMostDecodeRows = 256;
  constexpr int64_t kMostRows = 16384;
  std::vector<int64_t> rows;
  for (int64_t next = 64; next <= kMostDecodeRows; next = padded_rows(next + 1)) {
    rows.push_back(next);
  }
  for (int64_t next = 2 * kMostDecodeRows; next <= kMostRows; next *= 2) rows.push_back(next);
  return rows;
}

std::vector<int64_t> usual_tune_rows(int64_t max_step_tokens, int64_t max_logits_rows) {
  std::vector<int64_t> rows = default_tune_rows();
  for (int64_t next = 2 * rows.back(); next < max_step_tokens; next *= 2) rows.push_back(next);
  rows.push_back(max_step_tokens);
  rows.push_back(max_logits_rows);
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  return rows;
}

std::vector<TuningTask> plan_tuning(
    const TuningRequest& request, const ops::GpuKind& gpu,
    const std::function<int64_t(const MatrixProduct& product, int64_t rows)>& cublas_rows) {
  const DType dtype = request.model.dtype;
  std::vector<int64_t> all_rows =
      request.rows.empty() ? usual_tune_rows(request.max_step_tokens, request.max_logits_rows)
                           : request.rows;
  std::sort(all_rows.begin(), all_rows.end());
  std::vector<TuningTask> tasks;
  std::map<ops::LinearShape, size_t> places;  // in tasks
  for (const MatrixProduct& product : CountedModel(request.model).model().products()) {
    if (!product.format.is_dense()) continue;
    for (const int64_t wanted : all_rows) {
      if (wanted > (product.is_logits ? request.max_logits_rows : request.max_step_tokens)) break;
      const int64_t rows = cublas_rows(product, wanted);
      if (rows == 0) continue;
      const ops::LinearShape shape = shape_of(product, gpu, dtype, rows);
      const auto [place, is_new] = places.emplace(shape, tasks.size());
      if (is_new) {
        tasks.push_back({product.name, shape});
      }
      TuningTask& task = tasks[place->second];
      // An algorithm that takes a bias does without one, too.
      task.has_bias = task.has_bias || product.has_bias;
      if (task.name.find(product.name) == std::string::npos) task.name += ", " + product.name;
    }
  }
  return tasks;
}

size_t choose_trial(std::span<const ops::LinearTrial> trials, DType out_dtype) {
  const double tolerance = out_dtype == DType::kFloat32 ? kFloatTolerance : kHalfTolerance;
  size_t best = 0;
  for (size_t i = 1; i < trials.size(); ++i) {
    const ops::LinearTrial& trial = trials[i];
    if (trial.error <= tolerance && trial.repeats && trial.seconds < trials[best].seconds) best = i;
  }
  return trials[best].seconds <= (1 - kLeastGain) * trials.front().seconds ? best : 0;
}

TuneResult tune_products(DeviceLibrary& library, const TuningRequest& request,
                         const TuneOptions& options, const TuneCallback& on_progress) {
  return Tuning(library, request, options).run(on_progress);
}

}  // namespace quire
