#include "server/client_weights.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "quire/error.h"

namespace quire::server {
namespace {

int32_t parse_weight(std::string_view text, const std::string& setting) {
  double weight = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), weight);
  const double most = static_cast<double>(kMaxClientWeight) / kDefaultClientWeight;
  const double least = 1.0 / kDefaultClientWeight;
  if (error != std::errc() || end != text.data() + text.size() || !(weight >= least) ||
      weight > most) {
    throw Error(
        fmt::format("A client's weight is '{}'; expected NAME=WEIGHT with a weight from {} "
                    "to {}.",
                    setting, least, most));
  }
  return static_cast<int32_t>(std::lround(weight * kDefaultClientWeight));
}

}  // namespace

ClientWeights::ClientWeights(const std::vector<std::string>& settings) {
  for (const std::string& setting : settings) {
    const size_t equals = setting.rfind('=');
    if (equals == std::string::npos || equals == 0) {
      throw Error(
          fmt::format("A client's weight is '{}'; expected NAME=WEIGHT, for example key-1a2b3c4d=2 "
                      "(logs show clients' names).",
                      setting));
    }
    std::string name = setting.substr(0, equals);
    const int32_t weight = parse_weight(std::string_view(setting).substr(equals + 1), setting);
    if (!weights_.emplace(name, weight).second) {
      throw Error(fmt::format("The client {} has two weights; expected one.", name));
    }
  }
}

int32_t ClientWeights::of(std::string_view client) const {
  const auto weight = weights_.find(client);
  return weight == weights_.end() ? kDefaultClientWeight : weight->second;
}

}  // namespace quire::server
