#pragma once
// A JSON document that is written part by part, as a reader takes it: one of any size passes
// through a buffer of a few hundred kilobytes.
//
//   JsonParts body;
//   body.add([](JsonWriter& json) { json.begin_object().key("tokens").begin_array(); });
//   body.add_items(ids.size(), [&](JsonWriter& json, size_t i) { json.value(ids[i]); });
//   body.add([](JsonWriter& json) { json.end_array().end_object(); });
//   while (!body.complete()) send(body.next(kPieceBytes));
//
// Parts are written in the order in which they were added, each item once. A part is destroyed,
// with what it holds, as soon as it is written.
//
// Thread safety: one thread at a time.
#include <cstddef>
#include <deque>
#include <functional>
#include <string>

#include "base/json_writer.h"

namespace quire {

class JsonParts {
 public:
  JsonParts() = default;
  JsonParts(const JsonParts&) = delete;
  JsonParts& operator=(const JsonParts&) = delete;

  // A part that is written at once.
  void add(std::function<void(JsonWriter&)> write);
  // `count` pieces of text, from 0 on, between which the document may be cut.
  void add_items(std::size_t count, std::function<void(JsonWriter&, std::size_t)> write);

  // The text that comes next: at least `size` bytes, unless the document ends before.
  std::string next(std::size_t size);
  // Whether next() has given everything.
  bool complete() const { return parts_.empty(); }

 private:
  struct Part {
    std::size_t count;
    std::function<void(JsonWriter&, std::size_t)> write;
  };

  std::deque<Part> parts_;  // those that are not written yet
  std::size_t item_ = 0;    // of the first one, to be written next
  std::string buffer_;
  JsonWriter writer_{buffer_};
};

}  // namespace quire
