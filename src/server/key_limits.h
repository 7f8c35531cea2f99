#pragma once
// Limits of one API key: requests and tokens a minute, and requests at a time.
//
// A limit a minute is a bucket that fills evenly: a key that was idle may use a whole minute's
// worth at once, then as much as flows in. Tokens of prompts and outputs are counted when they are
// known; a request may take the bucket below zero, and the next one waits until it is above.
//
// Thread safety: the I/O thread; reading a file from any.
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "http/message.h"

namespace quire::server {

// None: no limit. All are at least 1.
struct KeyLimit {
  std::optional<int64_t> requests_per_minute{};
  std::optional<int64_t> tokens_per_minute{};
  std::optional<int64_t> concurrent_requests{};
};

struct KeyLimitTable {
  KeyLimit others{};  // of keys that have no entry
  // By the first eight digits of the key's SHA-256, as logs show them behind "key-".
  std::map<std::string, KeyLimit> by_key{};
};

// A JSON object of entries like
//   {"default": {"requests_per_minute": 60, "tokens_per_minute": 100000},
//    "key-1a2b3c4d": {"concurrent_requests": 8, "tokens_per_minute": null}}
// What an entry leaves out is as in "default"; null: no limit. Throws Error, naming the file and
// the entry, for anything else.
KeyLimitTable read_key_limit_file(const std::string& path);

class KeyLimits {
 public:
  using Clock = std::chrono::steady_clock;

  explicit KeyLimits(KeyLimitTable table, std::function<Clock::time_point()> now = Clock::now);

  // For requests from now on; what keys have used stays counted.
  void set(KeyLimitTable table) { table_ = std::move(table); }

  // Throws ApiError 429 where `owner` (ApiKeys::owner_of) has reached a limit for its next request;
  // `generates`: the request is a generation, not something smaller.
  void check(const std::string& owner, bool generates);
  // The same, and counts the request. One that generates is running until finish().
  void arrive(const std::string& owner, bool generates);
  void finish(const std::string& owner);
  void charge_tokens(const std::string& owner, int64_t num_tokens);

  // Adds x-ratelimit-limit-requests, -remaining-requests, -reset-requests, and the same for tokens,
  // with OpenAI's names, for the limits that `owner` has. "reset" is the time until the bucket is
  // full.
  void add_headers(const std::string& owner, http::Headers& headers);

 private:
  // The part of a minute's allowance that is used.
  struct Bucket {
    double used = 0;  // at `when`
    Clock::time_point when{};
  };
  struct Use {
    Bucket requests{};
    Bucket tokens{};
    int64_t running = 0;
  };

  const KeyLimit& limit_of(const std::string& owner) const;
  // What has been used and has not come in again.
  double refill(Bucket& bucket, int64_t per_minute) const;

  KeyLimitTable table_;
  std::function<Clock::time_point()> now_;
  std::map<std::string, Use> uses_;  // by owner
};

}  // namespace quire::server
