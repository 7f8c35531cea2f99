#include "cluster/secret.h"

#include <gtest/gtest.h>

#include <set>
#include <span>
#include <string>
#include <vector>

#include "cluster/frame.h"
#include "quire/error.h"

namespace quire::cluster {
namespace {

Transcript transcript_of(const std::string& secret, const Nonce& node, const Nonce& node_0) {
  return {secret, encode_hello({.node = 1, .nonce = node}), encode_nonce(node_0)};
}

TEST(Transcript, GivesEachPurposeADigestOfItsOwn) {
  const Nonce a = draw_nonce();
  const Nonce b = draw_nonce();
  std::set<Digest> digests;
  size_t num_digests = 0;
  for (const Transcript& transcript :
       {transcript_of("one", a, b), transcript_of("two", a, b), transcript_of("", a, b),
        transcript_of("one", b, a), transcript_of("one", a, a)}) {
    for (const Digest& digest : {transcript.proof_of_node(), transcript.proof_of_node_0(),
                                 transcript.key_to_node(), transcript.key_to_node_0()}) {
      digests.insert(digest);
      ++num_digests;
    }
  }
  EXPECT_EQ(digests.size(), num_digests);
  EXPECT_EQ(transcript_of("one", a, b).proof_of_node(), transcript_of("one", a, b).proof_of_node());
}

TEST(IsSame, TakesOnlyTheWholeDigest) {
  const Digest digest = transcript_of("one", draw_nonce(), draw_nonce()).proof_of_node();
  Digest other = digest;
  EXPECT_TRUE(is_same(other, digest));
  EXPECT_FALSE(is_same(std::span(other).first(31), digest));
  EXPECT_FALSE(is_same({}, digest));
  other[31] ^= std::byte{1};
  EXPECT_FALSE(is_same(other, digest));
}

class SealerTest : public testing::Test {
 protected:
  const Digest key_ = transcript_of("one", draw_nonce(), draw_nonce()).key_to_node();
  Sealer seals_{key_, Sealer::Way::kSeal};
  Sealer opens_{key_, Sealer::Way::kOpen};
  const Head head_ = encode_head({.kind = FrameKind::kBatch, .length = 3});
  const std::vector<std::byte> plain_{std::byte{1}, std::byte{2}, std::byte{3}};
  std::vector<std::byte> payload_ = plain_;
  std::array<std::byte, kTagBytes> tag_{};
};

TEST_F(SealerTest, OpensWhatWasSealedInItsOrder) {
  for (int i = 0; i < 3; ++i) {
    seals_.seal(head_, payload_, tag_);
    EXPECT_NE(payload_, plain_);
    EXPECT_TRUE(opens_.open(head_, payload_, tag_));
    EXPECT_EQ(payload_, plain_);
  }
}

TEST_F(SealerTest, SealsFramesWithoutAPayload) {
  seals_.seal(head_, {}, tag_);
  EXPECT_TRUE(opens_.open(head_, {}, tag_));
}

TEST_F(SealerTest, DoesNotOpenAFrameTwice) {
  seals_.seal(head_, payload_, tag_);
  auto again = payload_;
  EXPECT_TRUE(opens_.open(head_, payload_, tag_));
  EXPECT_FALSE(opens_.open(head_, again, tag_));
}

TEST_F(SealerTest, DoesNotOpenWhatWasChanged) {
  seals_.seal(head_, payload_, tag_);
  payload_[1] ^= std::byte{1};
  EXPECT_FALSE(opens_.open(head_, payload_, tag_));
}

TEST_F(SealerTest, DoesNotOpenAnotherHead) {
  seals_.seal(head_, payload_, tag_);
  EXPECT_FALSE(opens_.open(encode_head({.kind = FrameKind::kEnd, .length = 3}), payload_, tag_));
}

TEST(Frame, IsReadAsItWasWritten) {
  const Frame frame{.kind = FrameKind::kRanks,
                    .is_last = false,
                    .from = 700,
                    .to = 3,
                    .group = 9,
                    .length = 70000};
  EXPECT_EQ(decode_head(encode_head(frame), kMaxPayload), frame);
  EXPECT_THROW(decode_head(encode_head(frame), 69999), Error);
}

TEST(Facts, AreReadAsTheyWereWritten) {
  const Facts facts = {{"the model", "abc"}, {"", ""}, {"--threads", "4"}};
  EXPECT_EQ(decode_facts(encode_facts(facts)), facts);
  EXPECT_EQ(difference(facts, facts, 1), "");
  EXPECT_NE(difference(facts, {facts.begin(), facts.begin() + 1}, 1), "");
}

}  // namespace
}  // namespace quire::cluster
