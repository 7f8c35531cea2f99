#pragma once
// The inner loops of products, which take most of a simulated model's time.
//
// Sums are float32 and in the order that is given, on every machine and whatever the vectors'
// width. Sanitizers do not look into these loops (CMakeLists.txt), which would take a hundred times
// as long: operands are copies that read() made (elements.h), where each array is seen once. Thread
// safety: pure functions.
#include <array>
#include <cstddef>
#include <cstdint>

namespace quire::simulated {

// How many arrays dots() takes.
inline constexpr size_t kNumDots = 4;

// The dot products of `a` and of each array of `b`, all of n elements. Element i goes to partial
// sum i % 16 while there are 16 more; the partial sums are added in order, then the elements that
// remain.
std::array<float, kNumDots> dots(const float* a, const std::array<const float*, kNumDots>& b,
                                 int64_t n);

// sums[i] += factor * x[i], for n elements.
void add_scaled(float factor, const float* x, int64_t n, float* sums);

}  // namespace quire::simulated
