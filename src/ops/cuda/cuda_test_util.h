#pragma once
// What the tests of the CUDA ops share: arrays on the device, random data in every element type,
// comparisons that NaN never passes.
//
// Kernels run on a stream of their own, so every transfer here waits for the whole device first.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "base/check.h"
#include "core/check_cuda.h"
#include "core/dtype.h"
#include "core/stream_cuda.h"

namespace quire::ops {

// A test with a stream on the first GPU; skipped where there is none.
class CudaTest : public testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
      GTEST_SKIP() << "There is no GPU, or no driver for it.";
    }
    stream_ = std::make_unique<CudaStream>(0);
  }
  CudaStream& stream() { return *stream_; }
  std::mt19937& random() { return random_; }
  // Waits for what was queued, so that a fault is reported here.
  void synchronize() {
    check_cuda(cudaStreamSynchronize(stream_->get()), "running a kernel under test");
  }

 private:
  std::unique_ptr<CudaStream> stream_;
  std::mt19937 random_{20261121};
};

// An array of plain values in device memory, poisoned until it is written.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t count) : count_(count) {
    check_cuda(cudaMalloc(&data_, std::max<size_t>(count, 1) * sizeof(T)),
               "allocating a test's array");
    poison();
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    upload(values);
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() { return static_cast<T*>(data_); }
  size_t size() const { return count_; }

  void upload(const std::vector<T>& values) {
    check(values.size() == count_, "an array keeps its size");
    wait();
    check_cuda(cudaMemcpy(data_, values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice),
               "uploading a test's array");
    wait();
  }
  std::vector<T> download() const {
    std::vector<T> values(count_);
    wait();
    check_cuda(cudaMemcpy(values.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost),
               "downloading a test's array");
    return values;
  }
  // All bits 1: NaN in every floating point format, -1 in every integer.
  void poison() { fill(0xff); }
  void zero() { fill(0); }

 private:
  void fill(int byte) {
    wait();
    check_cuda(cudaMemset(data_, byte, count_ * sizeof(T)), "filling a test's array");
    wait();
  }
  static void wait() { check_cuda(cudaDeviceSynchronize(), "waiting for the device"); }

  size_t count_;
  void* data_ = nullptr;
};

// Float8 e4m3 (no infinities; 0x7f and 0xff are NaN).
inline float float_of_e4m3(uint8_t bits) {
  static const std::array<float, 256> values = [] {
    std::array<float, 256> all = {};
    for (int code = 0; code < 256; ++code) {
      const int exponent = (code >> 3) & 15;
      const int mantissa = code & 7;
      float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                      : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
      if (exponent == 15 && mantissa == 7) magnitude = std::numeric_limits<float>::quiet_NaN();
      all[static_cast<size_t>(code)] = code >= 128 ? -magnitude : magnitude;
    }
    return all;
  }();
  return values[bits];
}

// Rounds to nearest even and saturates at 448, as the hardware's satfinite conversion does.
inline uint8_t e4m3_of_float(float value) {
  if (std::isnan(value)) return 0x7f;
  const auto sign = static_cast<uint8_t>(std::signbit(value) ? 0x80 : 0);
  const float magnitude = std::min(std::abs(value), 448.0f);
  int low = 0;  // the greatest code not above the magnitude: codes are in order of value
  for (int step = 64; step > 0; step /= 2) {
    if (low + step <= 0x7e && float_of_e4m3(static_cast<uint8_t>(low + step)) <= magnitude) {
      low += step;
    }
  }
  if (low < 0x7e) {
    const float below = magnitude - float_of_e4m3(static_cast<uint8_t>(low));
    const float above = float_of_e4m3(static_cast<uint8_t>(low + 1)) - magnitude;
    if (above < below || (above == below && low % 2 != 0)) ++low;
  }
  return static_cast<uint8_t>(sign | low);
}

// Values as `dtype` stores them: float32, bfloat16, float16 or float8.
inline std::vector<std::byte> encode(DType dtype, std::span<const float> values) {
  std::vector<std::byte> bytes(values.size() * size_of(dtype));
  const auto put = [&bytes](size_t i, auto element) {
    std::memcpy(&bytes[i * sizeof(element)], &element, sizeof(element));
  };
  for (size_t i = 0; i < values.size(); ++i) {
    switch (dtype) {
      case DType::kBFloat16:
        put(i, BFloat16(values[i]));
        break;
      case DType::kFloat16:
        put(i, Float16(values[i]));
        break;
      case DType::kFloat8E4M3:
        put(i, e4m3_of_float(values[i]));
        break;
      case DType::kFloat8E5M2:
        put(i, Float8E5M2(values[i]));
        break;
      default:
        put(i, values[i]);
    }
  }
  return bytes;
}

inline std::vector<float> decode(DType dtype, std::span<const std::byte> bytes) {
  std::vector<float> values(bytes.size() / size_of(dtype));
  const auto get = [&bytes](size_t i, auto element) {
    std::memcpy(&element, &bytes[i * sizeof(element)], sizeof(element));
    return element;
  };
  for (size_t i = 0; i < values.size(); ++i) {
    switch (dtype) {
      case DType::kBFloat16:
        values[i] = static_cast<float>(get(i, BFloat16()));
        break;
      case DType::kFloat16:
        values[i] = static_cast<float>(get(i, Float16()));
        break;
      case DType::kFloat8E4M3:
        values[i] = float_of_e4m3(get(i, uint8_t{}));
        break;
      case DType::kFloat8E5M2:
        values[i] = static_cast<float>(get(i, Float8E5M2()));
        break;
      default:
        values[i] = get(i, 0.0f);
    }
  }
  return values;
}

// What is left of the values in `dtype`.
inline std::vector<float> rounded(DType dtype, std::span<const float> values) {
  return decode(dtype, encode(dtype, values));
}

// An array whose element type is chosen at run time; the host sees floats.
class DeviceElements {
 public:
  DeviceElements(DType dtype, size_t count) : dtype_(dtype), bytes_(count * size_of(dtype)) {}
  DeviceElements(DType dtype, std::span<const float> values)
      : dtype_(dtype), bytes_(encode(dtype, values)) {}

  void* data() { return bytes_.data(); }
  size_t size() const { return bytes_.size() / size_of(dtype_); }
  DType dtype() const { return dtype_; }
  void upload(std::span<const float> values) { bytes_.upload(encode(dtype_, values)); }
  std::vector<float> download() const { return decode(dtype_, bytes_.download()); }
  std::vector<std::byte> download_bytes() const { return bytes_.download(); }
  void poison() { bytes_.poison(); }
  void zero() { bytes_.zero(); }

 private:
  DType dtype_;
  DeviceArray<std::byte> bytes_;
};

// Normal with the given deviation, in float32: pass through rounded() or encode() as needed.
inline std::vector<float> random_values(size_t count, std::mt19937& random, float scale = 1.0f) {
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// What the heads of a float8 cache are divided by.
inline std::vector<float> random_scales(size_t count, std::mt19937& random) {
  std::uniform_real_distribution<float> uniform(0.05f, 3.0f);
  std::vector<float> scales(count);
  for (float& scale : scales) scale = uniform(random);
  return scales;
}

// max |actual - expected| <= tolerance * max |expected|.
inline testing::AssertionResult is_close(std::span<const float> actual,
                                         std::span<const float> expected, double tolerance) {
  if (actual.size() != expected.size()) {
    return testing::AssertionFailure() << actual.size() << " values, not " << expected.size();
  }
  double scale = 0;
  for (const float value : expected) scale = std::max(scale, std::abs(static_cast<double>(value)));
  double worst = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double error = std::abs(static_cast<double>(actual[i]) - expected[i]);
    if (!(error <= tolerance * scale)) {
      return testing::AssertionFailure()
             << "element " << i << " of " << actual.size() << " is " << actual[i] << ", not "
             << expected[i] << "; the greatest magnitude is " << scale;
    }
    worst = std::max(worst, error);
  }
  return testing::AssertionSuccess() << "greatest error " << worst << " of " << scale;
}

// ||actual - expected|| <= tolerance * ||expected||.
inline testing::AssertionResult is_close_l2(std::span<const float> actual,
                                            std::span<const float> expected, double tolerance) {
  if (actual.size() != expected.size()) {
    return testing::AssertionFailure() << actual.size() << " values, not " << expected.size();
  }
  double error = 0;
  double norm = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double difference = static_cast<double>(actual[i]) - expected[i];
    error += difference * difference;
    norm += static_cast<double>(expected[i]) * expected[i];
  }
  error = std::sqrt(error);
  norm = std::sqrt(norm);
  if (!(error <= tolerance * norm)) {
    return testing::AssertionFailure()
           << "the error's norm is " << error << ", and that of what is expected " << norm;
  }
  return testing::AssertionSuccess() << "relative error " << (norm > 0 ? error / norm : 0.0);
}

}  // namespace quire::ops
