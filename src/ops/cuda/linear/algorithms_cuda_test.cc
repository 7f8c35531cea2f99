// cuBLAS's algorithms by name: each gives the product, a table's is the one that runs, and what
// cuBLAS refuses is left to its heuristics.
#include <cmath>
#include <memory>
#include <optional>
#include <string>

#include "ops/cuda/cuda_test_util.h"
#include "ops/cuda/linear/cublas_cuda.h"
#include "ops/cuda/linear/linear.cuh"

namespace quire::ops {
namespace {

constexpr int kMostAlgorithms = 64;

struct Case {
  int64_t rows;
  int64_t n;
  int64_t k;
  DType dtype = DType::kBFloat16;
  bool float_out = false;
};

// Random operands on the device, and what their product is.
class Operands {
 public:
  Operands(const Case& c, std::mt19937& random, int64_t num_weights = 1)
      : case_(c),
        in_values_(rounded(c.dtype, random_values(static_cast<size_t>(c.rows * c.k), random))),
        weight_values_(
            rounded(c.dtype, random_values(static_cast<size_t>(num_weights * c.n * c.k), random,
                                           1 / std::sqrt(static_cast<float>(c.k))))),
        in_(c.dtype, in_values_),
        weight_(c.dtype, weight_values_),
        out_(c.float_out ? DType::kFloat32 : c.dtype, static_cast<size_t>(c.rows * c.n)) {}

  CudaLinear args() {
    return {.dtype = case_.dtype,
            .in = in_.data(),
            .in_stride = case_.k,
            .weight = {.format = case_.dtype, .data = weight_.data()},
            .rows = case_.rows,
            .n = case_.n,
            .k = case_.k,
            .bias = nullptr,
            .out = out_.data(),
            .out_stride = case_.n,
            .out_dtype = out_.dtype(),
            .silu_and_mul = false};
  }

  std::vector<float> expected() const {
    std::vector<float> out;
    for (int64_t row = 0; row < case_.rows; ++row) {
      for (int64_t column = 0; column < case_.n; ++column) {
        const float* x = &in_values_[static_cast<size_t>(row * case_.k)];
        const float* w = &weight_values_[static_cast<size_t>(column * case_.k)];
        double sum = 0;
        for (int64_t i = 0; i < case_.k; ++i) sum += static_cast<double>(x[i]) * w[i];
        out.push_back(static_cast<float>(sum));
      }
    }
    return out;
  }

  DeviceElements& out() { return out_; }
  double tolerance() const { return out_.dtype() == DType::kFloat32 ? 1e-5 : 5e-3; }

 private:
  Case case_;
  std::vector<float> in_values_;
  std::vector<float> weight_values_;
  DeviceElements in_;
  DeviceElements weight_;
  DeviceElements out_;
};

class LinearAlgorithmsCudaTest : public CudaTest {
 protected:
  LinearShape shape_of(const CudaLinear& args) {
    return {{stream().compute_capability(), stream().num_multiprocessors()},
            args.dtype,
            args.out_dtype,
            args.n,
            args.k,
            args.rows};
  }

  struct Candidate {
    LinearAlgorithm description;
    cublasLtMatmulAlgo_t algorithm;
  };
  // What a table could hold for a product: one algorithm at least, and more where the heuristics
  // name more that add up in float32, so that no test of them is one of nothing.
  static std::vector<Candidate> candidates(const cuda::CublasLinear& product) {
    std::vector<Candidate> all;
    int num_named = 0;
    for (const cublasLtMatmulAlgo_t& named : product.heuristics(kMostAlgorithms)) {
      const auto description = cuda::describe(named);
      if (!description || !sums_in_float32(*description)) continue;
      ++num_named;
      if (const auto algorithm = product.configure(*description)) {
        all.push_back({*description, *algorithm});
      }
    }
    EXPECT_GE(all.size(), num_named > 1 ? 2U : 1U) << "of " << num_named << " that are named";
    return all;
  }

  void expect_every_algorithm_right(const Case& c) {
    Operands operands(c, random());
    const auto expected = operands.expected();
    const cuda::CublasLinear product(stream(), operands.args(), nullptr);
    for (const auto& [description, algorithm] : candidates(product)) {
      SCOPED_TRACE("algorithm " + std::to_string(description.id) + ", tile " +
                   std::to_string(description.tile) + ", splits " +
                   std::to_string(description.split_k));
      EXPECT_EQ(cuda::describe(algorithm), description);
      operands.out().poison();
      product.run(algorithm);
      synchronize();
      EXPECT_TRUE(is_close_l2(operands.out().download(), expected, operands.tolerance()));
    }
  }

  // What a stream with this table makes of the operands' product, and how.
  struct Outcome {
    std::vector<std::byte> bits;
    std::optional<LinearAlgorithm> algorithm;
  };
  static Outcome product_with(std::shared_ptr<const LinearAlgorithms> table, Operands& operands) {
    CudaStream other(0, std::move(table));
    operands.out().poison();
    cuda::cublas_linear(other, operands.args(), nullptr);
    EXPECT_EQ(other.cublas_choices().size(), 1U);
    return {operands.out().download_bytes(),
            cuda::describe(other.cublas_choices().begin()->second.value())};
  }
};

TEST_F(LinearAlgorithmsCudaTest, EveryAlgorithmThatIsNamedGivesTheProduct) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16, DType::kFloat32}) {
    expect_every_algorithm_right({64, 256, 1024, dtype});
    expect_every_algorithm_right({200, 328, 520, dtype});
  }
  expect_every_algorithm_right({96, 1000, 2048, DType::kBFloat16, true});
}

TEST_F(LinearAlgorithmsCudaTest, TheTablesAlgorithmRuns) {
  Operands operands({96, 512, 4096, DType::kBFloat16, true}, random());
  const CudaLinear args = operands.args();
  const cuda::CublasLinear product(stream(), args, nullptr);
  for (const auto& [description, algorithm] : candidates(product)) {
    operands.out().poison();
    product.run(algorithm);
    const auto bits = operands.out().download_bytes();
    const auto table = std::make_shared<LinearAlgorithms>(
        std::vector<LinearAlgorithmEntry>{{shape_of(args), description}});
    const Outcome outcome = product_with(table, operands);
    EXPECT_EQ(outcome.algorithm, description) << "algorithm " << description.id;
    EXPECT_EQ(outcome.bits, bits) << "algorithm " << description.id;
  }
}

TEST_F(LinearAlgorithmsCudaTest, WhatCublasRefusesIsLeftToItsHeuristics) {
  Operands operands({96, 512, 1024}, random());
  const CudaLinear args = operands.args();
  const auto nothing = std::make_shared<LinearAlgorithms>(
      std::vector<LinearAlgorithmEntry>{{shape_of(args), std::nullopt}});
  const std::vector<std::byte> bits = product_with(nothing, operands).bits;
  EXPECT_TRUE(is_close_l2(operands.out().download(), operands.expected(), operands.tolerance()));
  for (const LinearAlgorithm& refused :
       {LinearAlgorithm{.id = 1'000'000}, LinearAlgorithm{.id = 66, .tile = 4'000'000},
        LinearAlgorithm{.id = 0, .tile = 0, .stages = 4'000'000, .split_k = 100'000}}) {
    const auto table = std::make_shared<LinearAlgorithms>(
        std::vector<LinearAlgorithmEntry>{{shape_of(args), refused}});
    EXPECT_EQ(product_with(table, operands).bits, bits);
  }
}

TEST_F(LinearAlgorithmsCudaTest, TrialsAreTimedAndAgree) {
  const Case c = {128, 512, 1024};
  constexpr int64_t kNumWeights = 3;
  Operands operands(c, random(), kNumWeights);
  const CudaLinear args = operands.args();
  // Any n elements do as a bias.
  for (const void* bias : {static_cast<const void*>(nullptr), args.weight.data}) {
    const cuda::CublasLinear product(stream(), args, bias);
    const size_t num_candidates = candidates(product).size();
    const auto trials = cuda::try_linear_algorithms(stream(), {.product = args,
                                                               .bias = bias,
                                                               .num_weights = kNumWeights,
                                                               .weight_stride = c.n * c.k,
                                                               .max_algorithms = kMostAlgorithms,
                                                               .repeats = 3});
    ASSERT_GE(trials.size(), num_candidates);
    EXPECT_EQ(trials.front().error, 0);
    for (const LinearTrial& trial : trials) {
      EXPECT_GT(trial.seconds, 0);
      EXPECT_LT(trial.seconds, 1);
      EXPECT_LE(trial.error, operands.tolerance());
      EXPECT_TRUE(trial.repeats) << "algorithm " << trial.algorithm.id;
    }
  }
}

TEST_F(LinearAlgorithmsCudaTest, CopiesAreTimed) {
  constexpr size_t kBytes = size_t{64} << 20;
  DeviceArray<std::byte> from(kBytes);
  DeviceArray<std::byte> to(kBytes);
  const double seconds = cuda::time_copy(
      stream(), {.to = to.data(), .from = from.data(), .bytes = kBytes, .repeats = 3});
  EXPECT_GT(seconds, 0);
  EXPECT_LT(seconds, 1);
}

// What is tuned are the shapes that cuBLAS gets.
TEST_F(LinearAlgorithmsCudaTest, RowsThatCublasGets) {
  CudaLinear args = {};
  args.dtype = args.out_dtype = DType::kBFloat16;
  args.rows = 16384;
  args.n = 24576;
  args.k = 4096;
  EXPECT_EQ(cuda::linear_cublas_rows(stream(), args), 16384);
  args.silu_and_mul = true;
  EXPECT_EQ(cuda::linear_cublas_rows(stream(), args), 2048);
  args.rows = 100;
  EXPECT_EQ(cuda::linear_cublas_rows(stream(), args), 100);
  args.k = 4097;
  EXPECT_EQ(cuda::linear_cublas_rows(stream(), args), 0);
  args.rows = 8;
  args.k = 4096;
  if (stream().compute_capability() == 90) {
    EXPECT_EQ(cuda::linear_cublas_rows(stream(), args), 0);
  }
}

}  // namespace
}  // namespace quire::ops
