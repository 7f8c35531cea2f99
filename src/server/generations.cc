#include "server/generations.h"

#include <utility>

namespace quire::server {

void Generations::start(std::shared_ptr<http::Exchange> exchange, RequestKind kind,
                        RequestRecord record, http::Headers headers) {
  const std::string owner = record.owner;
  context_.key_limits.arrive(owner, /*generates=*/true);
  std::shared_ptr<Generation> generation;
  try {
    context_.key_limits.add_headers(owner, headers);
    generation = std::make_shared<Generation>(context_, std::move(exchange), kind,
                                              std::move(record), std::move(headers),
                                              [this](Generation& ended) { ended_one(ended); });
    generations_.emplace(generation.get(), generation);
  } catch (...) {
    context_.key_limits.finish(owner);
    throw;
  }
  generation->begin();
}

void Generations::ended_one(Generation& ended) {
  context_.key_limits.finish(ended.record().owner);
  generations_.erase(&ended);
}

void Generations::fetch_ready() {
  if (!context_.ready->take(ready_entries_)) {
    for (const auto& generation : all()) generation->fetch_all();
  }
  for (const ReadyList::Entry& entry : ready_entries_) {
    if (const auto generation = entry.generation.lock()) generation->fetch(entry.prompt_index);
  }
}

std::optional<RequestRecord> Generations::find(std::string_view request_id,
                                               std::string_view owner) const {
  for (const auto& [key, generation] : generations_) {
    const RequestRecord& record = generation->record();
    if (record.request_id != request_id || record.owner != owner) continue;
    if (auto facts = generation->facts()) return facts;
  }
  return std::nullopt;
}

void Generations::cut_short() {
  for (const auto& generation : all()) generation->cut_short();
}

std::vector<std::shared_ptr<Generation>> Generations::all() const {
  std::vector<std::shared_ptr<Generation>> all;
  for (const auto& [key, generation] : generations_) all.push_back(generation);
  return all;
}

}  // namespace quire::server
