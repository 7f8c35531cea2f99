#include "server/key_limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/json_text.h"
#include "quire/error.h"
#include "server/api/api_error.h"
#include "server/setting_file.h"

namespace quire::server {
namespace {

using json = nlohmann::ordered_json;

constexpr std::string_view kKeyPrefix = "key-";
constexpr size_t kKeyDigits = 8;
constexpr double kMinute = 60;  // in seconds
constexpr const char* kShape =
    "an object of entries \"default\" and \"key-\" with the eight digits that logs show";

bool is_key_name(std::string_view name) {
  return name.size() == kKeyPrefix.size() + kKeyDigits && name.starts_with(kKeyPrefix) &&
         std::ranges::all_of(name.substr(kKeyPrefix.size()), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

// `limit` with the fields that `entry` gives replaced.
KeyLimit read_entry(const json& entry, KeyLimit limit, const std::string& where) {
  if (!entry.is_object()) throw Error(fmt::format("{}: expected an object of limits.", where));
  for (const auto& [name, value] : entry.items()) {
    std::optional<int64_t>* field = name == "requests_per_minute"   ? &limit.requests_per_minute
                                    : name == "tokens_per_minute"   ? &limit.tokens_per_minute
                                    : name == "concurrent_requests" ? &limit.concurrent_requests
                                                                    : nullptr;
    if (field == nullptr) {
      throw Error(
          fmt::format("{}: there is no limit \"{}\"; expected requests_per_minute, "
                      "tokens_per_minute or concurrent_requests.",
                      where, name));
    }
    if (value.is_null()) {
      field->reset();
    } else if (value.is_number_unsigned() && value.get<uint64_t>() >= 1 &&
               value.get<uint64_t>() <= INT64_MAX) {
      *field = value.get<int64_t>();
    } else {
      throw Error(fmt::format("{}: {} is {}; expected an integer of at least 1, or null.", where,
                              name, value.dump(-1, ' ', false, json::error_handler_t::replace)));
    }
  }
  return limit;
}

// Durations in OpenAI's form: 20ms, 7.66s, 6m0s.
std::string duration_text(double seconds) {
  const auto milliseconds = static_cast<int64_t>(std::ceil(seconds * 1000));
  if (milliseconds < 1000) return fmt::format("{}ms", milliseconds);
  const int64_t minutes = milliseconds / 60'000;
  const double rest = static_cast<double>(milliseconds % 60'000) / 1000;
  return minutes == 0 ? fmt::format("{:g}s", rest) : fmt::format("{}m{:g}s", minutes, rest);
}

int64_t whole_seconds(double seconds) {
  return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(seconds)));
}

}  // namespace

KeyLimitTable read_key_limit_file(const std::string& path) {
  json document;
  const JsonClearer clearer(document);
  try {
    document = parse_json_text(read_setting_file(path, "file of key limits"),
                               {.allow_repeated_keys = true});
  } catch (const JsonError&) {
    document = nullptr;
  }
  if (!document.is_object()) {
    throw Error(
        fmt::format("The file of key limits {} is no JSON object; expected {}.", path, kShape));
  }
  const auto where = [&](const std::string& name) {
    return fmt::format("The entry \"{}\" of the file of key limits {}", name, path);
  };
  KeyLimitTable table;
  if (document.contains("default")) {
    table.others = read_entry(document["default"], {}, where("default"));
  }
  for (const auto& [name, entry] : document.items()) {
    if (name == "default") continue;
    if (!is_key_name(name)) {
      // The name may be a key itself, which is shown nowhere.
      throw Error(fmt::format("An entry of the file of key limits {} is no key's; expected {}.",
                              path, kShape));
    }
    table.by_key[name.substr(kKeyPrefix.size())] = read_entry(entry, table.others, where(name));
  }
  return table;
}

KeyLimits::KeyLimits(KeyLimitTable table, std::function<Clock::time_point()> now)
    : table_(std::move(table)), now_(std::move(now)) {}

const KeyLimit& KeyLimits::limit_of(const std::string& owner) const {
  const auto found = table_.by_key.find(owner.substr(0, kKeyDigits));
  return found == table_.by_key.end() ? table_.others : found->second;
}

double KeyLimits::refill(Bucket& bucket, int64_t per_minute) const {
  const Clock::time_point now = now_();
  const double seconds = std::chrono::duration<double>(now - bucket.when).count();
  bucket.used = std::max(0.0, bucket.used - seconds * static_cast<double>(per_minute) / kMinute);
  bucket.when = now;
  return bucket.used;
}

void KeyLimits::check(const std::string& owner, bool generates) {
  const KeyLimit& limit = limit_of(owner);
  Use& use = uses_[owner];
  if (generates && limit.concurrent_requests && use.running >= *limit.concurrent_requests) {
    throw rate_limited(
        fmt::format("This key has {} requests running, as many as it may; wait until "
                    "one of them has ended.",
                    use.running),
        1);
  }
  // A request needs room for itself in the first bucket, and for one token in the second.
  const auto check_bucket = [&](Bucket& bucket, const std::optional<int64_t>& per_minute,
                                const char* what) {
    if (!per_minute) return;
    const double missing = refill(bucket, *per_minute) + 1 - static_cast<double>(*per_minute);
    if (missing <= 0) return;
    throw rate_limited(
        fmt::format("This key may use {} {} a minute, and has used them; try again later.",
                    *per_minute, what),
        whole_seconds(missing * kMinute / static_cast<double>(*per_minute)));
  };
  check_bucket(use.requests, limit.requests_per_minute, "requests");
  check_bucket(use.tokens, limit.tokens_per_minute, "tokens");
}

void KeyLimits::arrive(const std::string& owner, bool generates) {
  check(owner, generates);
  Use& use = uses_[owner];
  if (limit_of(owner).requests_per_minute) use.requests.used += 1;
  if (generates) ++use.running;
}

void KeyLimits::finish(const std::string& owner) {
  --uses_[owner].running;
}

void KeyLimits::charge_tokens(const std::string& owner, int64_t num_tokens) {
  const KeyLimit& limit = limit_of(owner);
  if (!limit.tokens_per_minute) return;
  Bucket& bucket = uses_[owner].tokens;
  bucket.used = refill(bucket, *limit.tokens_per_minute) + static_cast<double>(num_tokens);
}

void KeyLimits::add_headers(const std::string& owner, http::Headers& headers) {
  const KeyLimit& limit = limit_of(owner);
  const auto add = [&](Bucket& bucket, const std::optional<int64_t>& per_minute, const char* what) {
    if (!per_minute) return;
    const double used = refill(bucket, *per_minute);
    const auto most = static_cast<double>(*per_minute);
    headers.emplace_back(fmt::format("x-ratelimit-limit-{}", what), std::to_string(*per_minute));
    headers.emplace_back(fmt::format("x-ratelimit-remaining-{}", what),
                         std::to_string(static_cast<int64_t>(std::max(0.0, most - used))));
    headers.emplace_back(fmt::format("x-ratelimit-reset-{}", what),
                         duration_text(used * kMinute / most));
  };
  if (!limit.requests_per_minute && !limit.tokens_per_minute) return;
  Use& use = uses_[owner];
  add(use.requests, limit.requests_per_minute, "requests");
  add(use.tokens, limit.tokens_per_minute, "tokens");
}

}  // namespace quire::server
