#pragma once
// Qwen2 and Qwen2.5: q, k and v always have a bias, the rest never.
#include "models/registry.h"

namespace quire {

ModelFamily qwen2_family();

}  // namespace quire
