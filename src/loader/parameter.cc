#include "loader/parameter.h"

#include <algorithm>
#include <utility>

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

// Of a tensor that is one part of a parameter's.
ParameterMap::Target ParameterMap::part_target(std::string name, const Entry& entry, size_t part) {
  return {.name = std::move(name),
          .shape = entry.parts()[part].shape,
          .parameter = entry.parameter,
          .tensor = entry.tensor,
          .part = part};
}

// Of a tensor that is all parts of a parameter's.
std::vector<ParameterMap::Target> ParameterMap::whole_targets(const std::string& name,
                                                              const Entry& entry) {
  const FusedAlong fused_along = entry.parameter->tensors()[entry.tensor].fused_along;
  if (fused_along == FusedAlong::kCommon) {
    std::vector<Target> targets;
    for (size_t part = 0; part < entry.parts().size(); ++part) {
      targets.push_back(part_target(name, entry, part));
    }
    return targets;
  }
  const bool by_rows = fused_along == FusedAlong::kRows;
  const size_t axis = by_rows ? 0 : 1;
  std::vector<int64_t> shape = entry.parts().front().shape;
  shape.at(axis) = 0;
  std::vector<Target> targets;
  for (size_t part = 0; part < entry.parts().size(); ++part) {
    Target target = part_target(name, entry, part);
    (by_rows ? target.first_row : target.first_column) = shape[axis];
    shape[axis] += target.shape.at(axis);
    targets.push_back(std::move(target));
  }
  for (Target& target : targets) target.shape = shape;
  return targets;
}

void ParameterMap::add(const std::string& module, Parameter& parameter) {
  for (size_t i = 0; i < parameter.tensors().size(); ++i) {
    const std::string name = module + "." + parameter.tensors()[i].leaf;
    const bool added = tensors_.emplace(name, Entry{&parameter, i}).second;
    check(added, "two parameters of one name");
  }
}

bool ParameterMap::ignored(std::string_view name) const {
  return std::any_of(ignored_.begin(), ignored_.end(),
                     [name](const auto& rule) { return rule(name); });
}

bool ParameterMap::ignored_if_zero(std::string_view name) const {
  return std::any_of(ignored_zeros_.begin(), ignored_zeros_.end(),
                     [name](const auto& rule) { return rule(name); });
}

// Whether the checkpoint has the parts of this module under names of their own.
bool ParameterMap::is_packed(std::string_view module) const {
  return std::any_of(packed_.begin(), packed_.end(),
                     [module](const auto& entry) { return entry.second.module == module; });
}

std::vector<ParameterMap::Target> ParameterMap::find(std::string_view checkpoint_name) const {
  const NameParts name = split_name(checkpoint_name);
  const auto packed = packed_.find(name.module);
  const auto found = tensors_.find(checkpoint_name);
  if (packed == packed_.end() || found != tensors_.end()) {
    if (found == tensors_.end()) return {};
    const bool is_whole = found->second.parts().size() == 1 || !is_packed(name.module);
    return is_whole ? whole_targets(found->first, found->second) : std::vector<Target>();
  }
  const auto fused = tensors_.find(join_name(name, packed->second.module));
  const size_t part = packed->second.part;
  if (fused == tensors_.end() || part >= fused->second.parts().size()) return {};
  return {part_target(std::string(checkpoint_name), fused->second, part)};
}

std::vector<ParameterMap::Target> ParameterMap::targets() const {
  std::vector<Target> targets;
  for (const auto& [own, entry] : tensors_) {
    const size_t num_parts = entry.parts().size();
    const NameParts name = split_name(own);
    if (num_parts == 1 || !is_packed(name.module)) {
      for (Target& target : whole_targets(own, entry)) targets.push_back(std::move(target));
      continue;
    }
    size_t found = 0;
    for (const auto& [module, packed] : packed_) {
      if (packed.module != name.module) continue;
      targets.push_back(part_target(join_name(name, module), entry, packed.part));
      ++found;
    }
    check(found == num_parts, "the packed-modules table names every part of a fused parameter");
  }
  std::stable_sort(targets.begin(), targets.end(),
                   [](const Target& a, const Target& b) { return a.name < b.name; });
  return targets;
}

size_t ParameterMap::bytes() const {
  size_t bytes = 0;
  for (const auto& [name, entry] : tensors_) {
    if (entry.tensor == 0) bytes += entry.parameter->bytes();
  }
  return bytes;
}

}  // namespace quire
