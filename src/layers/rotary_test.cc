#include "layers/rotary.h"

#include <gtest/gtest.h>

#include <cmath>

namespace quire {
namespace {

// Expected values: ROPE_INIT_FUNCTIONS of transformers 5.17.0 (torch 2.11.0), called with the same
// settings; partial rotary embeddings as in its modeling_phi3.py.
void expect_frequencies(const RotaryFrequencies& got, double attention_factor,
                        const std::vector<float>& inv_freq) {
  EXPECT_NEAR(got.attention_factor, attention_factor, 1e-12);
  ASSERT_EQ(got.inv_freq.size(), inv_freq.size());
  for (size_t i = 0; i < inv_freq.size(); ++i) {
    // pow of float32 is good to about one unit in the last place, so a few may differ by that much.
    EXPECT_NEAR(got.inv_freq[i], inv_freq[i], 5e-7 * inv_freq[i]) << "frequency " << i;
  }
}

TEST(Rotary, DefaultIsThetaToThePower) {
  RopeConfig rope;
  rope.theta = 10000.0;
  expect_frequencies(rotary_frequencies(rope, 16, 4096, 4096), 1.0,
                     {1.0f, 0.316227764f, 0.100000001f, 0.0316227786f, 0.00999999978f,
                      0.00316227786f, 0.00100000005f, 0.000316227786f});
}

TEST(Rotary, PartialRotaryTakesTheLeadingElements) {
  RopeConfig rope;
  rope.theta = 1e6;
  rope.partial_rotary_factor = 0.25;
  expect_frequencies(rotary_frequencies(rope, 32, 4096, 4096), 1.0,
                     {1.0f, 0.0316227786f, 0.00100000005f, 3.16227743e-05f});
}

TEST(Rotary, LinearDividesAllFrequencies) {
  RopeConfig rope;
  rope.type = RopeType::kLinear;
  rope.theta = 10000.0;
  rope.factor = 3.0;
  expect_frequencies(rotary_frequencies(rope, 16, 4096, 4096), 1.0,
                     {0.333333343f, 0.105409257f, 0.0333333351f, 0.0105409259f, 0.00333333318f,
                      0.00105409266f, 0.000333333359f, 0.000105409265f});
}

TEST(Rotary, DynamicNtkIsPlainWithinTheOriginalLength) {
  RopeConfig rope;
  rope.type = RopeType::kDynamicNtk;
  rope.theta = 10000.0;
  rope.factor = 2.0;
  expect_frequencies(rotary_frequencies(rope, 16, 4096, 1000), 1.0,
                     {1.0f, 0.316227764f, 0.100000001f, 0.0316227786f, 0.00999999978f,
                      0.00316227786f, 0.00100000005f, 0.000316227786f});
}

TEST(Rotary, DynamicNtkTakesItsBaseFromTheLongestLength) {
  RopeConfig rope;
  rope.type = RopeType::kDynamicNtk;
  rope.theta = 10000.0;
  rope.factor = 2.0;
  expect_frequencies(rotary_frequencies(rope, 16, 4096, 12000), 1.0,
                     {1.0f, 0.252299905f, 0.0636552423f, 0.0160602108f, 0.00405198941f,
                      0.00102231663f, 0.000257930369f, 6.50758084e-05f});
}

TEST(Rotary, YarnBlendsFrequencies) {
  RopeConfig rope;
  rope.type = RopeType::kYarn;
  rope.theta = 1e6;
  rope.factor = 4.0;
  rope.original_max_position_embeddings = 32768;
  expect_frequencies(
      rotary_frequencies(rope, 32, 131072, 131072), 1.138629436111989,
      {1.0f, 0.421696514f, 0.177827939f, 0.0749894157f, 0.0316227786f, 0.0133352149f,
       0.00477990136f, 0.00165996165f, 0.000549999997f, 0.000168678584f, 4.44569851e-05f,
       1.87473561e-05f, 7.90569356e-06f, 3.33380353e-06f, 1.40585337e-06f, 5.92843435e-07f});
}

TEST(Rotary, YarnWithoutTruncation) {
  RopeConfig rope;
  rope.type = RopeType::kYarn;
  rope.theta = 10000.0;
  rope.factor = 8.0;
  rope.original_max_position_embeddings = 2048;
  rope.beta_fast = 16.0;
  rope.beta_slow = 2.0;
  rope.truncate = false;
  expect_frequencies(
      rotary_frequencies(rope, 32, 16384, 16384), 1.2079441541679836,
      {1.0f, 0.562341332f, 0.316227764f, 0.177827939f, 0.100000001f, 0.0562341288f, 0.0257716179f,
       0.0101850266f, 0.00330522214f, 0.000702926656f, 0.000395284733f, 0.000222284929f,
       0.000125000006f, 7.02926627e-05f, 3.95284733e-05f, 2.22284925e-05f});
}

TEST(Rotary, YarnTakesItsAttentionFactorFromMscale) {
  RopeConfig rope;
  rope.type = RopeType::kYarn;
  rope.theta = 10000.0;
  rope.factor = 40.0;
  rope.original_max_position_embeddings = 4096;
  rope.mscale = 0.707;
  rope.mscale_all_dim = 1.2;
  expect_frequencies(rotary_frequencies(rope, 16, 16384, 16384), 0.8739404576185121,
                     {1.0f, 0.316227764f, 0.100000001f, 0.0239147246f, 0.00512499968f,
                      0.000849862176f, 2.49999994e-05f, 7.90569447e-06f});
}

TEST(Rotary, YarnTakesAGivenAttentionFactor) {
  RopeConfig rope;
  rope.type = RopeType::kYarn;
  rope.theta = 10000.0;
  rope.factor = 40.0;
  rope.original_max_position_embeddings = 4096;
  rope.attention_factor = 1.25;
  expect_frequencies(rotary_frequencies(rope, 16, 16384, 16384), 1.25,
                     {1.0f, 0.316227764f, 0.100000001f, 0.0239147246f, 0.00512499968f,
                      0.000849862176f, 2.49999994e-05f, 7.90569447e-06f});
}

TEST(Rotary, Llama3SparesShortWavelengths) {
  RopeConfig rope;
  rope.type = RopeType::kLlama3;
  rope.theta = 500000.0;
  rope.factor = 32.0;
  rope.original_max_position_embeddings = 8192;
  rope.low_freq_factor = 1.0;
  rope.high_freq_factor = 4.0;
  expect_frequencies(rotary_frequencies(rope, 64, 131072, 131072), 1.0,
                     {1.0f,
                      0.663601279f,
                      0.440366626f,
                      0.292227834f,
                      0.193922758f,
                      0.128687382f,
                      0.0853971019f,
                      0.0566696189f,
                      0.0376060307f,
                      0.0249554086f,
                      0.0165604409f,
                      0.0109895291f,
                      0.00729266508f,
                      0.00483942125f,
                      0.00321144611f,
                      0.00129054801f,
                      0.000429556705f,
                      9.70828623e-05f,
                      1.94616387e-05f,
                      1.29147675e-05f,
                      8.57025589e-06f,
                      5.68723226e-06f,
                      3.77405445e-06f,
                      2.50446715e-06f,
                      1.66196742e-06f,
                      1.10288363e-06f,
                      7.31874934e-07f,
                      4.85673127e-07f,
                      3.22293289e-07f,
                      2.1387423e-07f,
                      1.41927202e-07f,
                      9.41830649e-08f});
}

TEST(Rotary, LongRopeTakesItsFactorsByTheLongestSequence) {
  RopeConfig rope;
  rope.type = RopeType::kLongRope;
  rope.theta = 10000.0;
  rope.factor = 32.0;
  rope.partial_rotary_factor = 0.75;
  rope.original_max_position_embeddings = 4096;
  rope.short_factor = {1.0, 1.05, 1.1, 1.2, 1.35, 1.5};
  rope.long_factor = {1.0, 1.2, 1.9, 3.5, 7.0, 12.5};
  expect_frequencies(
      rotary_frequencies(rope, 16, 131072, 4096), 1.1902380714238083,
      {1.0f, 0.205184266f, 0.0421962552f, 0.00833333284f, 0.00159587723f, 0.000309439318f});
  expect_frequencies(
      rotary_frequencies(rope, 16, 131072, 4097), 1.1902380714238083,
      {1.0f, 0.179536209f, 0.0244294107f, 0.00285714283f, 0.000307776325f, 3.71327151e-05f});
  rope.factor = 1.0;
  EXPECT_EQ(rotary_frequencies(rope, 16, 4096, 4096).attention_factor, 1.0);
  rope.attention_factor = 1.25;
  EXPECT_EQ(rotary_frequencies(rope, 16, 4096, 4096).attention_factor, 1.25);
}

TEST(Rotary, ZeroMscaleCountsAsNone) {
  RopeConfig rope;
  rope.type = RopeType::kYarn;
  rope.factor = 4.0;
  rope.original_max_position_embeddings = 4096;
  const double plain = rotary_frequencies(rope, 16, 16384, 16384).attention_factor;
  rope.mscale = 1.0;
  rope.mscale_all_dim = 0.0;
  EXPECT_EQ(rotary_frequencies(rope, 16, 16384, 16384).attention_factor, plain);
}

// Position 100,003 of LlamaRotaryEmbedding in transformers 5.17.0: angles there are as sensitive as
// they get.
TEST(Rotary, TableHoldsCosinesAndSinesFarOut) {
  ModelConfig config;
  config.head_dim = 16;
  config.max_position_embeddings = 131072;
  config.rope.type = RopeType::kYarn;
  config.rope.theta = 1e6;
  config.rope.factor = 4.0;
  config.rope.original_max_position_embeddings = 32768;
  const RotaryTable table(config, 100004);
  EXPECT_EQ(table.cos_sin().dim(0), 100004);
  EXPECT_EQ(table.cos_sin().dim(1), 16);
  EXPECT_EQ(table.bytes(), 100004u * 16u * sizeof(float));
  const std::vector<float> expected{1.12076986f,   -0.38283965f,  -0.40089336f, 0.797177374f,
                                    1.09918654f,   -0.299928427f, 0.800939202f, 1.12739527f,
                                    -0.200877979f, 1.07233894f,   1.06572115f,  0.813010037f,
                                    -0.297095984f, -1.09841704f,  0.809304357f, 0.159552574f};
  const float* row = table.cos_sin().row<float>(100003);
  for (size_t i = 0; i < expected.size(); ++i) {
    // One unit in the last place of a frequency is up to 0.004 radians here.
    EXPECT_NEAR(row[i], expected[i], 5e-3) << i;
  }
  // At position 0 all angles are 0.
  EXPECT_FLOAT_EQ(table.cos_sin().row<float>(0)[0], 1.1386294f);
  EXPECT_EQ(table.cos_sin().row<float>(0)[8], 0.0f);
}

}  // namespace
}  // namespace quire
