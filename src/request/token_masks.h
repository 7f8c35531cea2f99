#pragma once
// Which tokens may come next in the outputs of constrained requests
// (SamplingParams::structured_output), as the sampler of this process asks for it.
//
// Like callbacks (request/logits_processors.h), masks are kept apart from the batches:
// Request::is_constrained says that a request has masks. The one rank that samples runs in the
// engine's process and gets them here, as does a drafter in another stage. A mask depends only on
// the request and its output. Thread safety: TokenMasks from any thread, a RowMask from one at a
// time.
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

  // Bit t % 32 of word t / 32 is set if token t may come; ceil(vocab_size / 32) words.
  virtual std::span<const uint32_t> allowed() const = 0;
  // Whether take() returns true for every token.
  virtual bool takes_all() const = 0;
  // Takes the token that was sampled, whether it is allowed or not. Returns false if after this
  // token the answer could not end within the request's limit on tokens; allowed() is then narrowed
  // to the tokens after which it can.
  virtual bool take(int32_t token) = 0;
};

class TokenMasks {
 public:
  TokenMasks() = default;
  virtual ~TokenMasks() = default;
  TokenMasks(const TokenMasks&) = delete;
  TokenMasks& operator=(const TokenMasks&) = delete;

  // The mask of the token behind `output`, the tokens that output `index` of a request has so far.
  // `has_drafts`: the last of these are guesses. Null where any token may come because nobody will
  // see it: the request has ended, or the constraint forbids one of the drafts.
  virtual std::unique_ptr<RowMask> at(const Request& request, uint32_t index,
                                      std::span<const int32_t> output, bool has_drafts) = 0;
};

}  // namespace quire
