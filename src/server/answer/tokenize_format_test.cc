#include "server/answer/tokenize_format.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "server/api/api_schemas.h"
#include "server/api/api_test_util.h"

namespace quire::server {
namespace {

std::string whole(BodySource& body) {
  std::string text;
  while (body.more_follows()) text += body.next_piece();
  return text;
}

TEST(TokenizeBody, Answers) {
  const Tokenizer tokenizer = small_tokenizer();
  TokenizeBody without({2, 3}, /*with_texts=*/false, tokenizer, test_model());
  const std::string plain = whole(without);
  EXPECT_EQ(plain, R"({"count":2,"max_model_len":2048,"tokens":[2,3],"token_strs":null})");
  TokenizeBody with({2, 3}, /*with_texts=*/true, tokenizer, test_model());
  const std::string with_texts = whole(with);
  EXPECT_EQ(with_texts,
            R"({"count":2,"max_model_len":2048,"tokens":[2,3],"token_strs":["ab","Ġ"]})");
  const JsonSchemas schemas(response_schemas());
  EXPECT_FALSE(schemas.check("TokenizeResponse", Json::parse(plain)));
  EXPECT_FALSE(schemas.check("TokenizeResponse", Json::parse(with_texts)));
}

TEST(TokenizeBody, ComesInPieces) {
  constexpr size_t kTokens = 200'000;
  const Tokenizer tokenizer = small_tokenizer();
  TokenizeBody body(std::vector<int32_t>(kTokens, 2), /*with_texts=*/true, tokenizer, test_model());
  std::string text;
  int num_pieces = 0;
  for (; body.more_follows(); ++num_pieces) {
    const std::string piece = body.next_piece();
    EXPECT_LT(piece.size(), BodySource::kPieceBytes + 100);
    if (body.more_follows()) {
      EXPECT_GE(piece.size(), BodySource::kPieceBytes);
    }
    text += piece;
  }
  EXPECT_GT(num_pieces, 3);
  const Json answer = Json::parse(text);
  EXPECT_EQ(answer["tokens"].size(), kTokens);
  EXPECT_EQ(answer["token_strs"].back(), "ab");
}

}  // namespace
}  // namespace quire::server
