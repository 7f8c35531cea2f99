#pragma once
// The algorithms of a GPU's matrix products that a user gives (--linear-algorithms).
//
// Thread safety: free functions of their arguments and of the file.
#include <memory>
#include <string>

#include "core/device_library.h"
#include "ops/linear_algorithms_file.h"

namespace quire {

ops::GpuKind kind_of(const DeviceInfo& gpu);

// The file's entries before those of the source. Throws Error where the file cannot be read or is
// wrong (ops/linear_algorithms_file.h), and where it has nothing for a GPU like this one.
std::shared_ptr<const ops::LinearAlgorithms> load_gpu_algorithms(const std::string& file,
                                                                 const DeviceInfo& gpu);

}  // namespace quire
