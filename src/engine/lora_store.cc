#include "engine/lora_store.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <unordered_set>
#include <utility>

#include "quire/error.h"

namespace quire {
namespace {

// How many names a message lists.
constexpr size_t kMaxNamesInMessage = 8;

// Whether two paths are the same but for ".", ".." and separators; links are not followed.
bool is_same_folder(const std::filesystem::path& a, const std::filesystem::path& b) {
  const auto normal = [](const std::filesystem::path& path) {
    return (path / "").lexically_normal();
  };
  return normal(a) == normal(b);
}

}  // namespace

LoraStore::LoraStore(const LoraOptions& options, LoraTarget target, Share share)
    : options_(options), target_(std::move(target)), share_(std::move(share)) {
  for (const LoraPath& module : options_.modules) load(module.name, module.path, false);
}

void LoraStore::check_enabled() const {
  if (options_.enabled) return;
  throw Error(
      "This engine serves no adapters; give them with --lora NAME=PATH (quire generate, quire "
      "chat), "
      "or enable them with --enable-lora (quire serve).");
}

void LoraStore::check_name(const std::string& name, bool replace) const {
  if (name.empty() || name.size() > kMaxAdapterNameBytes) {
    throw Error(fmt::format("The name of the adapter has {} bytes; expected 1 to {}.", name.size(),
                            kMaxAdapterNameBytes));
  }
  const std::lock_guard lock(mutex_);
  if (replace || !adapters_.contains(name)) return;
  throw Error(
      fmt::format("There is an adapter \"{}\" already, from {}; unload it first, or ask for "
                  "it to be replaced.",
                  name, adapters_.at(name).path));
}

void LoraStore::load(const std::string& name, const std::string& path, bool replace,
                     LoraPathCheck check) {
  check_enabled();
  check_name(name, replace);
  const std::lock_guard reading(reading_);
  check_name(name, replace);
  read_new(name, path, std::move(check));
}

LoraWeightsPtr LoraStore::read_new(const std::string& name, const std::string& path,
                                   LoraPathCheck check) {
  if (check) check(path);
  LoraWeightsPtr weights = read(path);
  Dropped dropped;
  const std::lock_guard lock(mutex_);
  ++stats_.num_loads;
  adopt(weights);
  adapters_[name] = {path,          weights->id,    weights->content_hash, weights->kind,
                     weights->rank, weights->bytes, std::move(check)};
  drop_nameless(dropped);
  touch(weights, dropped);
  return weights;
}

LoraWeightsPtr LoraStore::load_once(const LoraRequest& request) {
  check_enabled();
  if (LoraWeightsPtr weights = find_of(request)) return weights;
  const std::lock_guard reading(reading_);
  if (LoraWeightsPtr weights = find_of(request)) return weights;
  if (const std::optional<Adapter> known = adapter_of(request)) {
    return read_new(request.name, known->path, known->check);
  }
  // The name gets no folder as long as this thread reads.
  check_name(request.name, false);
  return read_new(request.name, request.path, {});
}

std::optional<LoraStore::Adapter> LoraStore::adapter_of(const LoraRequest& request) const {
  const std::lock_guard lock(mutex_);
  const auto found = adapters_.find(request.name);
  if (found == adapters_.end() || !is_same_folder(found->second.path, request.path)) return {};
  return found->second;
}

LoraWeightsPtr LoraStore::find_of(const LoraRequest& request) {
  Dropped dropped;
  const std::lock_guard lock(mutex_);
  const auto found = adapters_.find(request.name);
  if (found == adapters_.end() || !is_same_folder(found->second.path, request.path)) return nullptr;
  LoraWeightsPtr weights = weights_of(found->second);
  if (weights) touch(weights, dropped);
  return weights;
}

void LoraStore::unload(const std::string& name) {
  check_enabled();
  Dropped dropped;
  const std::lock_guard lock(mutex_);
  at(name);
  adapters_.erase(name);
  drop_nameless(dropped);
}

LoraWeightsPtr LoraStore::find(const std::string& name) {
  check_enabled();
  Dropped dropped;
  const std::lock_guard lock(mutex_);
  LoraWeightsPtr weights = weights_of(at(name));
  if (weights) touch(weights, dropped);
  return weights;
}

LoraWeightsPtr LoraStore::hold(const std::string& name) {
  if (LoraWeightsPtr weights = find(name)) return weights;
  const std::lock_guard reading(reading_);
  // Another thread may have read it meanwhile, or taken its name.
  if (LoraWeightsPtr weights = find(name)) return weights;
  std::string path;
  LoraPathCheck check;
  {
    const std::lock_guard lock(mutex_);
    const Adapter& adapter = at(name);
    path = adapter.path;
    check = adapter.check;
  }
  if (check) check(path);
  LoraWeightsPtr weights = read(path);
  Dropped dropped;
  const std::lock_guard lock(mutex_);
  ++stats_.num_loads;
  adopt(weights);
  if (const auto adapter = adapters_.find(name); adapter != adapters_.end()) {
    // The folder may hold something else by now.
    adapter->second = {path,          weights->id,    weights->content_hash, weights->kind,
                       weights->rank, weights->bytes, std::move(check)};
    touch(weights, dropped);
  }
  return weights;
}

std::vector<LoraAdapterInfo> LoraStore::list() const {
  const std::lock_guard lock(mutex_);
  std::vector<LoraAdapterInfo> infos;
  for (const auto& [name, adapter] : adapters_) infos.push_back(describe(name, adapter));
  return infos;
}

std::optional<LoraAdapterInfo> LoraStore::info(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto adapter = adapters_.find(name);
  if (adapter == adapters_.end()) return std::nullopt;
  return describe(name, adapter->second);
}

LoraAdapterInfo LoraStore::describe(const std::string& name, const Adapter& adapter) const {
  return {.name = name,
          .path = adapter.path,
          .parent = target_.model.string(),
          .kind = adapter.kind,
          .rank = adapter.rank,
          .bytes = adapter.bytes,
          .content_hash = adapter.content_hash,
          .in_host_memory = !known_.at(adapter.content_hash).weights.expired()};
}

LoraStats LoraStore::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

const LoraStore::Adapter& LoraStore::at(const std::string& name) const {
  const auto found = adapters_.find(name);
  if (found != adapters_.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [other, adapter] : adapters_) {
    if (names.size() == kMaxNamesInMessage) break;
    names.push_back(other);
  }
  const size_t others = adapters_.size() - names.size();
  throw Error(fmt::format(
      "There is no adapter \"{}\"; {}.", name,
      names.empty() ? std::string("none is loaded")
                    : fmt::format("loaded are {}{}", fmt::join(names, ", "),
                                  others > 0 ? fmt::format(" and {} more", others) : "")));
}

LoraWeightsPtr LoraStore::weights_of(const Adapter& adapter) {
  return known_.at(adapter.content_hash).weights.lock();
}

LoraWeightsPtr LoraStore::find_equal(const std::string& content_hash) {
  const std::lock_guard lock(mutex_);
  const auto known = known_.find(content_hash);
  return known == known_.end() ? nullptr : known->second.weights.lock();
}

LoraWeightsPtr LoraStore::read(const std::string& path) {
  LoraWeights weights = read_lora(path, target_);
  if (LoraWeightsPtr present = find_equal(weights.content_hash)) return present;
  weights.id = ++last_id_;
  if (!share_) return std::make_shared<const LoraWeights>(std::move(weights));
  LoraWeightsPtr shared(new LoraWeights(std::move(weights)),
                        [forgotten = forgotten_](const LoraWeights* gone) {
                          const uint64_t id = gone->id;
                          delete gone;
                          forgotten->note(id);
                        });
  share_(*shared, path);
  return shared;
}

// Names of the same content get the new number, too.
void LoraStore::adopt(const LoraWeightsPtr& weights) {
  Known& known = known_[weights->content_hash];
  if (known.id == weights->id) return;
  known = {weights->id, weights};
  for (auto& [name, adapter] : adapters_) {
    if (adapter.content_hash == weights->content_hash) adapter.id = weights->id;
  }
}

std::vector<uint64_t> LoraStore::take_forgotten() {
  const std::lock_guard lock(forgotten_->mutex);
  return std::exchange(forgotten_->ids, {});
}

void LoraStore::touch(const LoraWeightsPtr& weights, Dropped& dropped) {
  std::erase(resident_, weights);
  resident_.push_back(weights);
  const auto most = static_cast<size_t>(options_.max_cpu_loras.value_or(options_.max_loras));
  while (resident_.size() > most) {
    dropped.splice(dropped.end(), resident_, resident_.begin());
    ++stats_.num_evictions;
  }
}

void LoraStore::drop_nameless(Dropped& dropped) {
  std::unordered_set<uint64_t> named;
  for (const auto& [name, adapter] : adapters_) named.insert(adapter.id);
  for (auto next = resident_.begin(); next != resident_.end();) {
    const auto weights = next++;
    if (!named.contains((*weights)->id)) dropped.splice(dropped.end(), resident_, weights);
  }
  std::erase_if(known_, [&](const auto& known) {
    return !named.contains(known.second.id) && known.second.weights.expired();
  });
}

}  // namespace quire
