#include "server/generations.h"

#include <utility>

namespace quire::server {

void Generations::start(std::shared_ptr<http::Exchange> exchange, RequestKind kind,
                        RequestRecord record, http::Headers headers) {
  const auto generation = std::make_shared<Generation>(
      context_, std::move(exchange), kind, std::move(record), std::move(headers),
      [this](Generation& ended) { generations_.erase(&ended); });
  generations_.emplace(generation.get(), generation);
  generation->begin();
}

void Generations::fetch_ready() {
  context_.ready->take(ready_entries_);
  for (const ReadyList::Entry& entry : ready_entries_) {
    if (const auto generation = entry.generation.lock()) generation->fetch(entry.prompt_index);
  }
}

void Generations::cut_short() {
  std::vector<std::shared_ptr<Generation>> all;  // each that ends leaves the map
  for (const auto& [key, generation] : generations_) all.push_back(generation);
  for (const auto& generation : all) generation->cut_short();
}

}  // namespace quire::server
