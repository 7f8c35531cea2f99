#pragma once
// Qwen3: query and key heads are normed; attention_bias is of all four projections.
#include "models/registry.h"

namespace quire {

ModelFamily qwen3_family();

}  // namespace quire
