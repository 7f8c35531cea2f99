#include "base/json_parts.h"

#include <utility>

namespace quire {

void JsonParts::add(std::function<void(JsonWriter&)> write) {
  add_items(1, [write = std::move(write)](JsonWriter& json, std::size_t) { write(json); });
}

void JsonParts::add_items(std::size_t count, std::function<void(JsonWriter&, std::size_t)> write) {
  if (count > 0) parts_.push_back({count, std::move(write)});
}

std::string JsonParts::next(std::size_t size) {
  while (!parts_.empty() && buffer_.size() < size) {
    const Part& part = parts_.front();
    while (item_ < part.count && buffer_.size() < size) part.write(writer_, item_++);
    if (item_ < part.count) break;
    item_ = 0;
    parts_.pop_front();
  }
  return std::exchange(buffer_, {});
}

}  // namespace quire
