#pragma once
// The decoder step's tests of ranks: one of two, without the other.
//
// Thread safety: one thread.
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ops/cuda/decoder_step/decoder_step_cuda_test_util.h"

namespace quire::ops::decoder_step_test {

// One rank of two: what the other sends is there before the kernel begins.
class TwoRanks {
 public:
  TwoRanks(int rank, const ModelShape& shape)
      : rank_(rank),
        hidden_(shape.hidden),
        count_(decoder_step_peer_words(shape.hidden, 2)),
        own_(std::vector<uint64_t>(to_size(count_))),
        other_(std::vector<uint64_t>(to_size(count_))),
        aborted_(std::vector<int>{0}) {}

  // What the other rank sends of each row in the first layer of the first step.
  void receive(const std::vector<Model::RankSums>& rows) {
    std::vector<uint64_t> words(to_size(count_));
    for (size_t row = 0; row < rows.size(); ++row) {
      for (int i = 0; i < hidden_; ++i) {
        words[place(0, 1 - rank_, row, i)] = word_of(rows[row].after_attention[to_size(i)]);
        words[place(1, 1 - rank_, row, i)] = word_of(rows[row].after_mlp[to_size(i)]);
      }
    }
    own_.upload(words);
  }

  PeerWords words() {
    PeerWords words = {.rank = rank_, .size = 2, .count = count_, .aborted = aborted_.data()};
    words.regions[rank_] = own_.data();
    words.regions[1 - rank_] = other_.data();
    return words;
  }
  void abort() { aborted_.upload({1}); }

  // What was sent are the sums of these rows, and nothing else.
  void check_sent(const std::vector<Model::RankSums>& rows, double tolerance) const {
    const std::vector<uint64_t> words = other_.download();
    Values actual, expected;
    size_t num_sent = 0;
    for (const uint64_t word : words) num_sent += word != 0 ? 1 : 0;
    for (size_t row = 0; row < rows.size(); ++row) {
      for (int i = 0; i < hidden_; ++i) {
        for (int which = 0; which < 2; ++which) {
          const uint64_t word = words[place(which, rank_, row, i)];
          ASSERT_EQ(word >> 32, kTag) << "row " << row << ", element " << i;
          actual.push_back(std::bit_cast<float>(static_cast<uint32_t>(word)));
        }
        expected.push_back(rows[row].after_attention[to_size(i)]);
        expected.push_back(rows[row].after_mlp[to_size(i)]);
      }
    }
    EXPECT_EQ(num_sent, actual.size());
    EXPECT_TRUE(is_close(actual, expected, tolerance));
  }

 private:
  static constexpr uint64_t kTag = 1;  // of the first layer of the first step

  static uint64_t word_of(float value) { return kTag << 32 | std::bit_cast<uint32_t>(value); }
  size_t place(int which, int rank, size_t row, int feature) const {
    return (to_size(which * 2 + rank) * kMaxDecoderStepRows + row) * to_size(hidden_) +
           to_size(feature);
  }

  int rank_;
  int hidden_;
  int64_t count_;
  DeviceArray<uint64_t> own_;
  DeviceArray<uint64_t> other_;
  DeviceArray<int> aborted_;
};

}  // namespace quire::ops::decoder_step_test
