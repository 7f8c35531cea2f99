#include "runner/machine.h"

#include "base/thread_pool.h"
#include "core/stream.h"
#include "ops/machine_ceilings.h"

namespace quire {

MachineLimits measure_machine(int threads, Isa isa, DType dtype) {
  ThreadPool pool(threads, {});
  Stream stream(pool, isa);
  const ops::MachineCeilings ceilings = ops::measure_ceilings(stream, dtype);
  return {ceilings.read_gb_s, ceilings.peak_gflops};
}

}  // namespace quire
