// The kernels of products are compiled without the thread sanitizer (base/watched_memory.h): it
// still finds what races with them.
#include <gtest/gtest.h>

#include "base/watched_memory.h"

#ifdef QUIRE_THREAD_SANITIZER

#include <atomic>
#include <cstdlib>
#include <thread>

#include "ops/linear.h"
#include "ops/op_test_util.h"

namespace quire::ops {
namespace {

enum class Raced { kNothing, kInput, kWeights, kOutput };

// A product on one thread, and on another what touches the same memory, not ordered with it. Ends
// the process: with exit code 66 where the sanitizer found a race.
[[noreturn]] void run(const WeightFormat& format, Raced raced) {
  constexpr int64_t kRows = 2, kN = 64, kK = 512;
  std::mt19937 random(1);
  OwnedTensor<float> in = random_tensor({kRows, kK}, random), out({kRows, kN});
  OwnedTensor<float> other_in = random_tensor({kRows, kK}, random), other_out({kRows, kN});
  OwnedTensor<float> rows = random_tensor({kN, kK}, random);
  Weight weight(format, kN, kK);
  const auto pack = [&](int64_t begin, int64_t end) {
    const Tensor source = rows.tensor().rows(begin, end);
    format.is_integer() ? weight.quantise_rows(begin, source) : weight.pack_rows(begin, source);
  };
  pack(0, kN);
  // Says when the other thread may begin, but orders nothing before with anything after.
  std::atomic<bool> multiplied = false;
  std::thread product([&] {
    ThreadPool pool(1);
    Stream stream(pool);
    linear(stream, in.tensor(), weight, Tensor(), out.tensor());
    multiplied.store(true, std::memory_order_relaxed);
  });
  std::thread other([&] {
    while (!multiplied.load(std::memory_order_relaxed)) std::this_thread::yield();
    if (raced == Raced::kInput) in.at(1, 7) = 1;
    if (raced == Raced::kWeights) pack(5, 6);
    ThreadPool pool(1);
    Stream stream(pool);
    linear(stream, other_in.tensor(), weight, Tensor(),
           raced == Raced::kOutput ? out.tensor() : other_out.tensor());
  });
  product.join();
  other.join();
  std::exit(0);
}

WeightFormat with_rounded_inputs(WeightFormat format) {
  format.rounds_activations = true;
  return format;
}

TEST(LinearRaces, AreFound) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const WeightFormat formats[] = {DType::kFloat32, DType::kBFloat16,
                                  with_rounded_inputs(WeightFormat::integers(8, 64)),
                                  WeightFormat::integers(4, 32, true)};
  for (const WeightFormat& format : formats) {
    SCOPED_TRACE("format " + std::to_string(&format - formats));
    EXPECT_EXIT(run(format, Raced::kNothing), testing::ExitedWithCode(0), "");
    for (const Raced raced : {Raced::kInput, Raced::kWeights, Raced::kOutput}) {
      EXPECT_EXIT(run(format, raced), testing::ExitedWithCode(66), "data race")
          << static_cast<int>(raced);
    }
  }
}

}  // namespace
}  // namespace quire::ops

#endif
