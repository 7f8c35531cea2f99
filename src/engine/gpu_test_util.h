#pragma once
// GPUs for tests of the engine: those of the library that QUIRE_CUDA_LIBRARY names, real ones or
// simulated.
#include <cstddef>

#include "core/device_library.h"

namespace quire::engine_test {

inline size_t num_gpus() {
  const LoadedLibrary loaded = load_cuda_library();
  return loaded.library ? loaded.library->devices().size() : 0;
}

}  // namespace quire::engine_test

#define QUIRE_SKIP_WITHOUT_GPUS(count)   \
  if (engine_test::num_gpus() < (count)) \
  GTEST_SKIP() << "there are fewer than " << (count) << " GPUs here"
