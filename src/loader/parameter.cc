#include "loader/parameter.h"

#include <algorithm>

#include "base/check.h"

namespace quire {
namespace {

// "a.b.weight" is module "b" with prefix "a." and leaf ".weight".
struct NameParts {
  std::string_view prefix;
  std::string_view module;
  std::string_view leaf;
};

NameParts split_name(std::string_view name) {
  const size_t leaf = std::min(name.rfind('.'), name.size());
  const size_t dot = leaf == 0 ? std::string_view::npos : name.rfind('.', leaf - 1);
  const size_t module = dot == std::string_view::npos || leaf == name.size() ? 0 : dot + 1;
  return {name.substr(0, module), name.substr(module, leaf - module), name.substr(leaf)};
}

std::string join_name(const NameParts& name, std::string_view module) {
  return std::string(name.prefix).append(module).append(name.leaf);
}

}  // namespace

void ParameterMap::add(std::string name, Parameter& parameter) {
  const bool added = parameters_.emplace(std::move(name), &parameter).second;
  check(added, "two parameters of one name");
}

bool ParameterMap::ignored(std::string_view name) const {
  return std::any_of(ignored_.begin(), ignored_.end(),
                     [name](const auto& rule) { return rule(name); });
}

std::optional<ParameterMap::Target> ParameterMap::find(std::string_view checkpoint_name) const {
  const NameParts name = split_name(checkpoint_name);
  std::string own(checkpoint_name);
  size_t part = 0;
  const auto packed = packed_.find(name.module);
  if (packed != packed_.end()) {
    own = join_name(name, packed->second.module);
    part = packed->second.part;
  }
  const auto found = parameters_.find(own);
  if (found == parameters_.end()) return std::nullopt;
  const size_t num_parts = found->second->parts().size();
  // A fused parameter is loaded by its parts' names alone.
  if (packed == packed_.end() ? num_parts != 1 : part >= num_parts) return std::nullopt;
  return Target{std::string(checkpoint_name), found->second, part};
}

std::vector<ParameterMap::Target> ParameterMap::targets() const {
  std::vector<Target> targets;
  for (const auto& [own, parameter] : parameters_) {
    const size_t num_parts = parameter->parts().size();
    if (num_parts == 1) {
      targets.push_back({own, parameter, 0});
      continue;
    }
    const NameParts name = split_name(own);
    size_t found = 0;
    for (const auto& [module, packed] : packed_) {
      if (packed.module != name.module) continue;
      targets.push_back({join_name(name, module), parameter, packed.part});
      ++found;
    }
    check(found == num_parts, "the packed-modules table names every part of a fused parameter");
  }
  std::sort(targets.begin(), targets.end(),
            [](const Target& a, const Target& b) { return a.name < b.name; });
  return targets;
}

size_t ParameterMap::bytes() const {
  size_t bytes = 0;
  for (const auto& [own, parameter] : parameters_) bytes += parameter->bytes();
  return bytes;
}

}  // namespace quire
