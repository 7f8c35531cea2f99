#pragma once
// The LoRA adapters that requests can name as their model.
//
// Thread safety: any thread.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quire::server {

struct ServedAdapter {
  std::string name{};    // as clients name it
  std::string root{};    // the folder that it was loaded from
  std::string parent{};  // the name of the model that it is for
  int64_t created = 0;   // Unix time in seconds
};

class AdapterList {
 public:
  // Adds it, or takes the place of the one with its name.
  void put(ServedAdapter adapter);
  // Calls `current` with the entry of `name` (null where there is none) and stores its result as
  // the new entry; an empty result removes the entry. The list is locked meanwhile, so that of
  // concurrent calls the last one counts.
  void update(
      const std::string& name,
      const std::function<std::optional<ServedAdapter>(const ServedAdapter* before)>& current);

  size_t size() const;
  bool contains(std::string_view name) const;
  std::optional<ServedAdapter> find(std::string_view name) const;
  // Sorted by name.
  std::vector<ServedAdapter> all() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, ServedAdapter, std::less<>> adapters_;
};

}  // namespace quire::server
