#pragma once
// Mistral: no bias anywhere, a sliding window in every layer where the config has one.
#include "models/registry.h"

namespace quire {

ModelFamily mistral_family();

}  // namespace quire
