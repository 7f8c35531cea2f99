#pragma once
// How much of the server each client may have: --client-weights.
//
// Thread safety: immutable once made.
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "quire/engine_limits.h"

namespace quire::server {

class ClientWeights {
 public:
  ClientWeights() = default;
  // Each "NAME=WEIGHT": a client as logs call it (key-1a2b3c4d, or an address where the server has
  // no keys) and a number from 0.01 to 100. Throws Error for anything else, and for a name given
  // twice.
  explicit ClientWeights(const std::vector<std::string>& settings);

  // In hundredths; kDefaultClientWeight for clients that are not named.
  int32_t of(std::string_view client) const;

 private:
  std::map<std::string, int32_t, std::less<>> weights_;
};

}  // namespace quire::server
