#pragma once
// Llama 2 to 3.2: attention_bias is of all four projections, mlp_bias of the three of the MLP.
#include "models/registry.h"

namespace quire {

ModelFamily llama_family();

}  // namespace quire
