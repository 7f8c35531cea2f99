#include "server/api/adapter_list.h"

#include <utility>

namespace quire::server {

void AdapterList::put(ServedAdapter adapter) {
  const std::lock_guard lock(mutex_);
  std::string name = adapter.name;
  adapters_.insert_or_assign(std::move(name), std::move(adapter));
}

void AdapterList::update(
    const std::string& name,
    const std::function<std::optional<ServedAdapter>(const ServedAdapter*)>& current) {
  const std::lock_guard lock(mutex_);
  const auto before = adapters_.find(name);
  if (std::optional<ServedAdapter> adapter =
          current(before == adapters_.end() ? nullptr : &before->second)) {
    adapters_.insert_or_assign(name, std::move(*adapter));
  } else {
    adapters_.erase(name);
  }
}

size_t AdapterList::size() const {
  const std::lock_guard lock(mutex_);
  return adapters_.size();
}

bool AdapterList::contains(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  return adapters_.contains(name);
}

std::optional<ServedAdapter> AdapterList::find(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  const auto found = adapters_.find(name);
  if (found == adapters_.end()) return std::nullopt;
  return found->second;
}

std::vector<ServedAdapter> AdapterList::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<ServedAdapter> all;
  for (const auto& [name, adapter] : adapters_) all.push_back(adapter);
  return all;
}

}  // namespace quire::server
