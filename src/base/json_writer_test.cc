#include "base/json_writer.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

namespace quire {
namespace {

using Json = nlohmann::ordered_json;

std::string dumped(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string written(const auto& value) {
  std::string out;
  JsonWriter(out).value(value);
  return out;
}

void write_tree(JsonWriter& json, const Json& tree) {
  switch (tree.type()) {
    case Json::value_t::object:
      json.begin_object();
      for (const auto& [name, member] : tree.items()) write_tree(json.key(name), member);
      json.end_object();
      return;
    case Json::value_t::array:
      json.begin_array();
      for (const Json& item : tree) write_tree(json, item);
      json.end_array();
      return;
    case Json::value_t::string:
      json.value(tree.get_ref<const std::string&>());
      return;
    case Json::value_t::boolean:
      json.value(tree.get<bool>());
      return;
    case Json::value_t::number_integer:
      json.value(tree.get<int64_t>());
      return;
    case Json::value_t::number_unsigned:
      json.value(tree.get<uint64_t>());
      return;
    case Json::value_t::number_float:
      json.value(tree.get<double>());
      return;
    default:
      json.null();
  }
}

class Trees {
 public:
  explicit Trees(uint32_t seed) : random_(seed) {}

  // Any bytes, most of them where UTF-8 has its borders.
  std::string text() {
    constexpr std::array<std::string_view, 10> kPieces = {
        "a",    "é",           "\xE2\x82\xAC", "\xF0\x9F\x98\x80",
        "\"",   "\xED\xA0",    "\xE0\x80",     "\xF4\x90\x80\x80",
        "\xC3", "\xF0\x9F\x98"};
    std::string text;
    for (uint32_t i = below(6); i > 0; --i) {
      if (below(2) == 0) {
        text += kPieces[below(kPieces.size())];
      } else {
        text += static_cast<char>(below(256));
      }
    }
    return text;
  }
  double number() {
    const auto bits = (uint64_t{random_()} << 32) | random_();
    return below(2) == 0 ? std::bit_cast<double>(bits)
                         : static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  }
  Json tree(int depth) {
    switch (below(depth > 0 ? 9 : 7)) {
      case 0:
        return nullptr;
      case 1:
        return below(2) == 0;
      case 2:
        return static_cast<int64_t>((uint64_t{random_()} << 32) | random_());
      case 3:
        return (uint64_t{random_()} << 32) | random_();
      case 4:
        return number();
      case 5:
        return static_cast<double>(below(1000)) / 10;
      case 6:
        return text();
      case 7: {
        Json array = Json::array();
        for (uint32_t i = below(5); i > 0; --i) array.push_back(tree(depth - 1));
        return array;
      }
      default: {
        Json object = Json::object();
        for (uint32_t i = below(5); i > 0; --i) object[text()] = tree(depth - 1);
        return object;
      }
    }
  }

 private:
  uint32_t below(std::size_t n) { return static_cast<uint32_t>(random_() % n); }
  std::mt19937 random_;
};

TEST(JsonWriter, WritesADocument) {
  std::string out = "data: ";
  JsonWriter json(out);
  EXPECT_FALSE(json.complete());
  json.begin_object().member("count", 2).key("ids").begin_array().value(7).value(9).end_array();
  json.key("none").begin_array().end_array().key("empty").begin_object().end_object();
  json.null_member("gone").member("yes", true).member("text", "a\nb");
  EXPECT_FALSE(json.complete());
  json.end_object();
  EXPECT_TRUE(json.complete());
  EXPECT_EQ(out, R"(data: {"count":2,"ids":[7,9],"none":[],"empty":{},"gone":null,"yes":true,)"
                 R"("text":"a\nb"})");
}

TEST(JsonWriter, GoesOnWhereTheCallerHasTakenWhatWasWritten) {
  std::string out;
  std::string all;
  JsonWriter json(out);
  json.begin_array();
  for (int i = 0; i < 5; ++i) {
    json.begin_object().key("i");
    all += std::exchange(out, {});
    json.value(i).end_object();
    all += std::exchange(out, {});
  }
  json.end_array();
  EXPECT_EQ(all + out, R"([{"i":0},{"i":1},{"i":2},{"i":3},{"i":4}])");
}

TEST(JsonWriter, NumbersAreThoseOfTheLibrary) {
  EXPECT_EQ(written(1.0), "1.0");
  EXPECT_EQ(written(-0.0), "-0.0");
  EXPECT_EQ(written(1e-7), "1e-07");
  EXPECT_EQ(written(0.1F), "0.10000000149011612");
  EXPECT_EQ(written(std::numeric_limits<double>::quiet_NaN()), "null");
  EXPECT_EQ(written(std::numeric_limits<double>::infinity()), "null");
  for (const double value : {0.0, 1e15, 1e16, 123456789012345678.0, 1e22, 5e-324, 1e-5, 1e-4,
                             std::numeric_limits<double>::max(), -2.5e-310}) {
    EXPECT_EQ(written(value), Json(value).dump());
  }
  Trees trees(7);
  for (int i = 0; i < 200'000; ++i) {
    const double value = trees.number();
    ASSERT_EQ(written(value), Json(value).dump());
  }
  EXPECT_EQ(written(std::numeric_limits<int64_t>::min()), "-9223372036854775808");
  EXPECT_EQ(written(std::numeric_limits<uint64_t>::max()), "18446744073709551615");
  EXPECT_EQ(written(int8_t{-3}), "-3");
}

TEST(JsonWriter, EveryByteIsEscapedAsTheLibraryDoesIt) {
  for (int first = 0; first < 256; ++first) {
    for (int second = 0; second < 256; ++second) {
      const std::string text = {'a', static_cast<char>(first), static_cast<char>(second)};
      ASSERT_EQ(written(text), dumped(text)) << first << " " << second;
      ASSERT_EQ(written(text + "\x80z"), dumped(text + "\x80z")) << first << " " << second;
    }
  }
}

TEST(JsonWriter, TreesAreThoseOfTheLibrary) {
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    const Json tree = Trees(seed).tree(5);
    std::string out;
    JsonWriter json(out);
    write_tree(json, tree);
    ASSERT_TRUE(json.complete());
    ASSERT_EQ(out, dumped(tree)) << "seed " << seed;
  }
}

TEST(JsonWriter, NestsAsDeepAsItSays) {
  std::string out;
  JsonWriter json(out);
  for (int i = 0; i < JsonWriter::kMaxDepth; ++i) json.begin_array();
  json.value(1).value(2);
  for (int i = 0; i < JsonWriter::kMaxDepth; ++i) json.end_array();
  EXPECT_TRUE(json.complete());
  EXPECT_EQ(out, std::string(JsonWriter::kMaxDepth, '[') + "1,2" +
                     std::string(JsonWriter::kMaxDepth, ']'));
}

TEST(JsonWriterDeath, WhatIsNoJsonIsRefused) {
  std::string out;
  EXPECT_DEATH(JsonWriter(out).begin_object().value(1), "without its key");
  EXPECT_DEATH(JsonWriter(out).begin_array().key("a"), "JSON key");
  EXPECT_DEATH(JsonWriter(out).begin_object().key("a").key("b"), "JSON key");
  EXPECT_DEATH(JsonWriter(out).begin_object().key("a").end_object(), "closed");
  EXPECT_DEATH(JsonWriter(out).begin_object().end_array(), "closed");
  EXPECT_DEATH(JsonWriter(out).end_array(), "closed");
  EXPECT_DEATH(JsonWriter(out).value(1).value(2), "second JSON document");
  EXPECT_DEATH(
      {
        JsonWriter json(out);
        for (int i = 0; i <= JsonWriter::kMaxDepth; ++i) json.begin_array();
      },
      "deeper");
}

}  // namespace
}  // namespace quire
