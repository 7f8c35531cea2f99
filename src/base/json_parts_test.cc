#include "base/json_parts.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace quire {
namespace {

void add_document(JsonParts& parts, std::size_t num_items) {
  parts.add([](JsonWriter& json) { json.begin_object().key("items").begin_array(); });
  parts.add_items(num_items, [](JsonWriter& json, std::size_t i) { json.value(i); });
  parts.add([](JsonWriter& json) { json.end_array(); });
  parts.add([](JsonWriter& json) { json.member("done", true).end_object(); });
}

TEST(JsonParts, AnyCutGivesTheSameDocument) {
  JsonParts whole;
  add_document(whole, 100);
  const std::string expected = whole.next(1 << 20);
  EXPECT_TRUE(whole.complete());
  EXPECT_EQ(expected.substr(0, 17), R"({"items":[0,1,2,3)");
  for (const std::size_t size : {1, 2, 7, 50, 291}) {
    JsonParts parts;
    add_document(parts, 100);
    std::string text;
    while (!parts.complete()) {
      const std::string piece = parts.next(size);
      EXPECT_LE(piece.size(), size + 13);  // the longest part is what closes the document
      text += piece;
    }
    EXPECT_EQ(text, expected);
  }
}

TEST(JsonParts, ListsMayBeEmpty) {
  JsonParts parts;
  add_document(parts, 0);
  EXPECT_EQ(parts.next(1000), R"({"items":[],"done":true})");
  EXPECT_TRUE(parts.complete());
}

TEST(JsonParts, APartIsDestroyedOnceItIsWritten) {
  auto held = std::make_shared<int>(7);
  JsonParts parts;
  parts.add([held](JsonWriter& json) { json.begin_array().value(*held); });
  parts.add([](JsonWriter& json) { json.end_array(); });
  EXPECT_EQ(held.use_count(), 2);
  EXPECT_EQ(parts.next(1), "[7");
  EXPECT_EQ(held.use_count(), 1);
  EXPECT_EQ(parts.next(1), "]");
}

}  // namespace
}  // namespace quire
