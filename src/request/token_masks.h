#pragma once
// Which tokens the outputs of constrained requests (SamplingParams::structured_output) may go on
// with, as the sampler of this process asks for it.
//
// Like callbacks (request/logits_processors.h) they are kept apart from what ranks are told:
// Request::is_constrained says that a request has masks, and the one rank that samples, which runs
// in the engine's process, gets them here. Masks depend on the request and its output alone.
// Thread safety: TokenMasks from any thread, a RowMask from one at a time.
#include <cstdint>
#include <memory>
#include <span>

#include "request/request.h"

namespace quire {

// The mask of one token to be sampled:
//
//   row.allowed()                             sample among these
//   if (!row.take(token)) sample once more    among fewer; take() is then true
class RowMask {
 public:
  RowMask() = default;
  virtual ~RowMask() = default;
  RowMask(const RowMask&) = delete;
  RowMask& operator=(const RowMask&) = delete;

  // Bit t % 32 of word t / 32 is set if token t may come; of ceil(vocab_size / 32) words.
  virtual std::span<const uint32_t> allowed() const = 0;
  // Whether take() is true at once, whatever is sampled.
  virtual bool takes_all() const = 0;
  // Takes the token that was sampled; one that is not allowed may be anything. False if behind it
  // the answer could not end within the request's limit on tokens: allowed() then has those behind
  // which it can.
  virtual bool take(int32_t token) = 0;
};

class TokenMasks {
 public:
  TokenMasks() = default;
  virtual ~TokenMasks() = default;
  TokenMasks(const TokenMasks&) = delete;
  TokenMasks& operator=(const TokenMasks&) = delete;

  // The mask of the token behind `output`, what output `index` of a request has generated so far.
  // `has_drafts`: the last of these are guesses. Null where any token may come, because nobody will
  // see it: the request has ended, or the constraint forbids a draft.
  virtual std::unique_ptr<RowMask> at(const Request& request, uint32_t index,
                                      std::span<const int32_t> output, bool has_drafts) = 0;
};

}  // namespace quire
