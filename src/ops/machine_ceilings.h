#pragma once
// The limits of this machine, measured, with which achieved speed is compared.
//
// Thread safety: as for the stream.
#include "core/dtype.h"
#include "core/stream.h"

namespace quire::ops {

struct MachineCeilings {
  double read_gb_s = 0;    // 1e9 bytes a second read from memory by all threads of the stream
  double peak_gflops = 0;  // multiply-adds (two operations each) from registers, all threads
};

// dtype: of the weights: float32, bfloat16 or uint8 (integers of 8 or 4 bits); peak_gflops is for
// the instructions that a linear op uses for them. Takes somewhat over half a second and 256 MiB on
// a machine that should be idle.
MachineCeilings measure_ceilings(Stream& stream, DType dtype);

// The two parts of it.
double measure_read_gb_s(Stream& stream);
double measure_peak_gflops(Stream& stream, DType dtype);

}  // namespace quire::ops
