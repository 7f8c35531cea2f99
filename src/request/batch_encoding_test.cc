#include "request/batch_encoding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <string>

#include "quire/error.h"

namespace quire {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<const Request> full_request() {
  Request request;
  request.number = 7;
  request.prompt_token_ids = {0, 127, 128, 151'935, std::numeric_limits<int32_t>::max()};
  request.params.temperature = 0.7;
  request.params.top_k = -1;
  request.params.top_p = 1e-9;
  request.params.min_p = 0.25;
  request.params.repetition_penalty = 1.1;
  request.params.presence_penalty = -2;
  request.params.frequency_penalty = 0.5;
  request.params.logit_bias = {{0, -100.0f}, {151'935, 0.1f}};
  request.params.max_tokens = 1'000'000;
  request.params.min_tokens = 3;
  request.params.stop_token_ids = {2, 9};
  request.params.ignore_eos = true;
  request.params.logprobs = 0;
  request.params.prompt_logprobs = 20;
  request.has_logits_processors = true;
  request.is_constrained = true;
  request.lora_id = 300;
  request.seed = std::numeric_limits<uint64_t>::max();
  return std::make_shared<const Request>(std::move(request));
}

ScheduledBatch full_batch() {
  ScheduledBatch batch;
  batch.step = 1'000'000'007;
  batch.removed = {3, std::numeric_limits<uint64_t>::max()};
  const auto first = full_request();
  Request plain;
  plain.number = 300;
  plain.prompt_token_ids = {5};
  plain.params.max_tokens = std::nullopt;
  const auto second = std::make_shared<const Request>(std::move(plain));
  batch.added = {{11, first, 0, {}}, {12, second, 0, {7, 8}}, {13, first, 1, {6}}};
  batch.sequences = {{.id = 9,
                      .kind = ChunkKind::kDecode,
                      .num_computed_tokens = 40'000,
                      .num_tokens = 1,
                      .samples = true,
                      .new_block_ids = {}},
                     {.id = 8,
                      .kind = ChunkKind::kVerify,
                      .num_computed_tokens = 300,
                      .num_tokens = 4,
                      .samples = true,
                      .draft_token_ids = {5, kDraftOfRunner, 0},
                      .new_block_ids = {3}},
                     {.id = 11,
                      .kind = ChunkKind::kPrefill,
                      .num_computed_tokens = 0,
                      .num_tokens = 5,
                      .samples = false,
                      .new_block_ids = {0, 70'000}}};
  batch.num_tokens = 10;
  batch.drafter_reads_prompts = true;
  return batch;
}

void expect_equal(const SamplingParams& actual, const SamplingParams& expected) {
  EXPECT_EQ(actual.temperature, expected.temperature);
  EXPECT_EQ(actual.top_k, expected.top_k);
  EXPECT_EQ(actual.top_p, expected.top_p);
  EXPECT_EQ(actual.min_p, expected.min_p);
  EXPECT_EQ(actual.repetition_penalty, expected.repetition_penalty);
  EXPECT_EQ(actual.presence_penalty, expected.presence_penalty);
  EXPECT_EQ(actual.frequency_penalty, expected.frequency_penalty);
  EXPECT_EQ(actual.logit_bias, expected.logit_bias);
  EXPECT_EQ(actual.max_tokens, expected.max_tokens);
  EXPECT_EQ(actual.min_tokens, expected.min_tokens);
  EXPECT_EQ(actual.stop_token_ids, expected.stop_token_ids);
  EXPECT_EQ(actual.ignore_eos, expected.ignore_eos);
  EXPECT_EQ(actual.logprobs, expected.logprobs);
  EXPECT_EQ(actual.prompt_logprobs, expected.prompt_logprobs);
}

void expect_equal(const Request& actual, const Request& expected) {
  EXPECT_EQ(actual.number, expected.number);
  EXPECT_EQ(actual.prompt_token_ids, expected.prompt_token_ids);
  expect_equal(actual.params, expected.params);
  EXPECT_EQ(actual.has_logits_processors, expected.has_logits_processors);
  EXPECT_EQ(actual.is_constrained, expected.is_constrained);
  EXPECT_EQ(actual.lora_id, expected.lora_id);
  EXPECT_EQ(actual.seed, expected.seed);
}

std::string refusal_of(std::span<const std::byte> bytes) {
  try {
    decode_batch(bytes);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(BatchEncoding, GivesTheSameBatch) {
  const ScheduledBatch batch = full_batch();
  const ScheduledBatch decoded = decode_batch(encode_batch(batch));
  EXPECT_EQ(decoded.step, batch.step);
  EXPECT_EQ(decoded.removed, batch.removed);
  EXPECT_EQ(decoded.num_tokens, batch.num_tokens);
  EXPECT_EQ(decoded.drafter_reads_prompts, batch.drafter_reads_prompts);
  ASSERT_EQ(decoded.added.size(), batch.added.size());
  for (size_t i = 0; i < batch.added.size(); ++i) {
    EXPECT_EQ(decoded.added[i].id, batch.added[i].id);
    EXPECT_EQ(decoded.added[i].index, batch.added[i].index);
    EXPECT_EQ(decoded.added[i].output_token_ids, batch.added[i].output_token_ids);
    expect_equal(*decoded.added[i].request, *batch.added[i].request);
  }
  EXPECT_EQ(decoded.added[0].request, decoded.added[2].request) << "a prompt is held once";
  ASSERT_EQ(decoded.sequences.size(), batch.sequences.size());
  for (size_t i = 0; i < batch.sequences.size(); ++i) {
    EXPECT_EQ(decoded.sequences[i], batch.sequences[i]) << i;
  }
}

TEST(BatchEncoding, LeavesTheEnginesOwnFactsOut) {
  Request request = *full_request();
  request.id = "an id";
  request.prompt = "a text";
  request.cache_salt = "a salt";
  request.params.stop = {"a stop"};
  ScheduledBatch batch;
  batch.added = {{1, std::make_shared<const Request>(request), 0, {}}};
  const std::vector<std::byte> bytes = encode_batch(batch);
  const std::string_view written(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  for (const char* secret : {"an id", "a text", "a salt", "a stop"}) {
    EXPECT_EQ(written.find(secret), std::string_view::npos) << secret;
  }
}

TEST(BatchEncoding, ADecodeStepIsSmall) {
  ScheduledBatch batch;
  batch.step = 100'000;
  for (SequenceId id = 0; id < 256; ++id) {
    batch.sequences.push_back({.id = 1'000'000 + id,
                               .kind = ChunkKind::kDecode,
                               .num_computed_tokens = 30'000,
                               .num_tokens = 1,
                               .samples = true,
                               .new_block_ids = {}});
    if (id % 16 == 0) batch.sequences.back().new_block_ids = {100'000};
  }
  EXPECT_LE(encode_batch(batch).size(), 3000u);
}

TEST(BatchEncoding, RefusesWhatIsCutOffOrTooLong) {
  std::vector<std::byte> bytes = encode_batch(full_batch());
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_NE(refusal_of(std::span(bytes).first(size)), "") << size;
  }
  bytes.push_back(std::byte{0});
  EXPECT_THAT(refusal_of(bytes), HasSubstr("1 bytes follow"));
}

TEST(BatchEncoding, NamesWhatIsWrong) {
  std::vector<std::byte> bytes = encode_batch({});
  bytes[0] = std::byte{'X'};
  EXPECT_THAT(refusal_of(bytes), HasSubstr("no scheduled batch"));
  bytes = encode_batch({});
  bytes[2] = std::byte{99};
  EXPECT_THAT(refusal_of(bytes), HasSubstr("version 99, but this program reads 5"));
  bytes = encode_batch({});
  bytes[5] = std::byte{0x7f};  // the number of removed sequences
  EXPECT_THAT(refusal_of(bytes), HasSubstr("a list of 127 items has 3 bytes"));
  // A step of more than 64 bits.
  bytes = {std::byte{'Q'}, std::byte{'B'}, std::byte{5}};
  bytes.insert(bytes.end(), 11, std::byte{0xff});
  EXPECT_THAT(refusal_of(bytes), HasSubstr("more than 64 bits"));
}

TEST(BatchEncoding, RefusesValuesOutOfTheirRanges) {
  ScheduledBatch batch = full_batch();
  batch.sequences[2].num_tokens = 0;
  EXPECT_THAT(refusal_of(encode_batch(batch)), HasSubstr("a chunk has 0 tokens"));
  batch = full_batch();
  batch.sequences[1].num_computed_tokens = -1;
  EXPECT_THAT(refusal_of(encode_batch(batch)), HasSubstr("a chunk begins at token -1"));
  batch = full_batch();
  batch.sequences[0].kind = static_cast<ChunkKind>(3);
  EXPECT_THAT(refusal_of(encode_batch(batch)), HasSubstr("no chunk of kind 3"));
  batch = full_batch();
  batch.sequences[0].draft_token_ids = {1};
  EXPECT_THAT(refusal_of(encode_batch(batch)), HasSubstr("do not go together"));
  batch = full_batch();
  batch.sequences[1].draft_token_ids = {1, -2, 1};
  EXPECT_THAT(refusal_of(encode_batch(batch)), HasSubstr("a draft is below -1"));
  batch = full_batch();
  batch.sequences[1].draft_token_ids.resize(kMaxDraftTokens + 1);
  EXPECT_THAT(refusal_of(encode_batch(batch)), HasSubstr("a chunk has 32 drafts"));
  batch = full_batch();
  batch.sequences[1].new_block_ids = {-1};
  EXPECT_THAT(refusal_of(encode_batch(batch)), HasSubstr("block"));
  batch = full_batch();
  batch.added[0].output_token_ids = {-1};
  EXPECT_THAT(refusal_of(encode_batch(batch)), HasSubstr("generated token"));
  Request request;
  batch.added[0].request = std::make_shared<const Request>(request);
  EXPECT_THAT(refusal_of(encode_batch(batch)), HasSubstr("no prompt"));
  request.prompt_token_ids = {1};
  request.params.temperature = std::numeric_limits<double>::quiet_NaN();
  batch.added[0].request = std::make_shared<const Request>(request);
  EXPECT_THAT(refusal_of(encode_batch(batch)), HasSubstr("temperature"));
}

std::vector<std::byte> bytes_of(std::initializer_list<int> values) {
  std::vector<std::byte> bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

TEST(BatchEncoding, RefusesNumbersThatAreLongerThanTheyNeed) {
  EXPECT_EQ(refusal_of(bytes_of({'Q', 'B', 5, 0x80, 1, 0, 0, 0, 0, 0})), "");
  EXPECT_THAT(refusal_of(bytes_of({'Q', 'B', 5, 0x81, 0, 0, 0, 0, 0, 0})),
              HasSubstr("a number ends with a byte of 0"));
}

TEST(BatchEncoding, RefusesChunksThatEndBeyondTheLastPosition) {
  ScheduledBatch batch = full_batch();
  ScheduledSequence& chunk = batch.sequences[2];
  chunk.num_computed_tokens = std::numeric_limits<int32_t>::max() - chunk.num_tokens;
  EXPECT_EQ(refusal_of(encode_batch(batch)), "");
  ++chunk.num_computed_tokens;
  EXPECT_THAT(refusal_of(encode_batch(batch)),
              HasSubstr("a chunk of 5 tokens begins at token 2147483643"));
}

TEST(BatchEncoding, RefusesRequestsThatAreThereTwiceOrForNothing) {
  ScheduledBatch batch = full_batch();
  batch.added[1].request = full_request();  // another object
  EXPECT_THAT(refusal_of(encode_batch(batch)), HasSubstr("request 7 is there twice"));

  // Behind the requests: the number of added sequences, and for each its request.
  batch = {};
  Request request = *full_request();
  batch.added = {{1, std::make_shared<const Request>(request), 0, {}}};
  request.number = 8;
  batch.added.push_back({2, std::make_shared<const Request>(request), 0, {}});
  const std::vector<std::byte> bytes = encode_batch(batch);
  EXPECT_EQ(refusal_of(bytes), "");
  const auto with_requests = [&](int first, int second) {
    const auto written = bytes_of({2, 0, 1, 1, 0, 0, 2, 0, 0, 0});
    std::vector<std::byte> changed = bytes;
    const auto at = changed.end() - std::ssize(written);
    EXPECT_TRUE(std::equal(at, changed.end(), written.begin()));
    at[1] = static_cast<std::byte>(first);
    at[2] = static_cast<std::byte>(second);
    return changed;
  };
  EXPECT_THAT(refusal_of(with_requests(0, 0)), HasSubstr("a request is of no sequence"));
  EXPECT_THAT(refusal_of(with_requests(0, 2)), HasSubstr("a sequence is of no request"));
  EXPECT_THAT(refusal_of(with_requests(1, 0)), HasSubstr("not in the order"));
}

TEST(BatchEncoding, RefusesALogitBiasThatIsThereTwice) {
  Request request;
  request.prompt_token_ids = {1};
  request.params.logit_bias = {{50, 0.0f}, {60, 0.0f}};
  ScheduledBatch batch;
  batch.added = {{1, std::make_shared<const Request>(request), 0, {}}};
  std::vector<std::byte> bytes = encode_batch(batch);
  EXPECT_EQ(refusal_of(bytes), "");
  const auto biases = bytes_of({2, 100, 0, 0, 0, 0, 120, 0, 0, 0, 0});  // ids are zigzag
  const auto at = std::search(bytes.begin(), bytes.end(), biases.begin(), biases.end());
  ASSERT_NE(at, bytes.end());
  at[6] = at[1];
  EXPECT_THAT(refusal_of(bytes), HasSubstr("the ids of a logit_bias do not ascend"));
}

}  // namespace
}  // namespace quire
