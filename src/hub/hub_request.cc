#include "hub/hub_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <condition_variable>
#include <mutex>

#include "quire/error.h"

namespace quire {
namespace {

using std::chrono::milliseconds;

constexpr int kMaxFailures = 6;       // in a row
constexpr int kMaxFirstFailures = 3;  // to reach a hub that was never reached
constexpr int kMaxTotal = 1000;
constexpr milliseconds kFirstDelay{500};
constexpr int64_t kMaxAskedWaitS = 300;
constexpr size_t kMaxQuoted = 200;

bool is_server_trouble(int status) {
  return status == 408 || status == 429 || status >= 500;
}

// A refusal by the host that the hub redirects to is that of a signed address, which expires;
// unless that is a hub too, which says why it refuses.
bool is_expired_address(const HttpHead& head) {
  return !head.from_hub && head.error_code.empty() && head.status >= 400 && head.status < 500;
}

bool is_temporary(const HttpResult& result) {
  switch (result.end) {
    case HttpResult::End::kCut:
    case HttpResult::End::kUnreachable:
      return true;
    case HttpResult::End::kAnswered:
      return result.head.status < 300 || is_server_trouble(result.head.status) ||
             result.head.status == 416 || is_expired_address(result.head);
    default:
      return false;
  }
}

// The hub's own words about a refusal, as a clause.
std::string quoted(const HttpHead& head) {
  if (head.error_message.empty()) return "";
  return fmt::format(" The hub says: {}", head.error_message.substr(0, kMaxQuoted));
}

}  // namespace

std::string HubTarget::shown() const {
  return file.empty() ? repository : repository + ": " + file;
}

int64_t hub_internal::asked_wait_s(const HttpHead& head) {
  if (head.retry_after_s > 0) return head.retry_after_s;
  // RateLimit: "api";r=0;t=55 (draft-ietf-httpapi-ratelimit-headers)
  if (head.rate_limit.find(";r=0") == std::string::npos) return 0;
  const size_t at = head.rate_limit.find(";t=");
  if (at == std::string::npos) return 0;
  int64_t seconds = 0;
  std::from_chars(head.rate_limit.data() + at + 3, head.rate_limit.data() + head.rate_limit.size(),
                  seconds);
  return std::max<int64_t>(seconds, 0);
}

std::string hub_internal::refusal_message(const HubTarget& target, const HttpHead& head) {
  const std::string page = target.endpoint + "/" + target.repository;
  const std::string& name = target.repository;
  if (head.error_code == "GatedRepo") {
    return fmt::format(
        "{} is gated: accept its licence at {}, then {} (HTTP {}).", name, page,
        target.has_token ? "try again; the token that was sent belongs to an account without access"
                         : "set HF_TOKEN to an access token of your account",
        head.status);
  }
  if (head.status == 401 && !target.has_token) {
    return fmt::format(
        "{}: the hub does not show it to everyone (HTTP 401): either there is no such model, or it "
        "is "
        "private or gated. Check the name; for a gated model accept its licence at {}; then set "
        "HF_TOKEN to an access token of your account.",
        name, page);
  }
  if (head.status == 401) {
    return fmt::format("{}: the hub does not accept the access token (HTTP 401): check HF_TOKEN.{}",
                       name, quoted(head));
  }
  if (head.status == 403) {
    return fmt::format(
        "{}: the hub refuses access (HTTP 403): accept the licence at {} if there is one, and set "
        "HF_TOKEN to an access token that may read it.{}",
        name, page, quoted(head));
  }
  if (head.status == 404 && head.error_code == "RevisionNotFound") {
    return fmt::format("{} has no revision {} (HTTP 404).", name, target.revision);
  }
  if (head.status == 404 && !target.file.empty()) {
    return fmt::format("{}: the file {} is listed but not there (HTTP 404).", name, target.file);
  }
  if (head.status == 404) {
    return fmt::format("{}: there is no such model{} on {} (HTTP 404).", name,
                       target.revision == "main" ? "" : " or no revision " + target.revision,
                       target.endpoint);
  }
  return fmt::format("{}: {} answers with HTTP {}.{}", target.shown(), head.origin, head.status,
                     quoted(head));
}

Attempts::Attempts(HubTarget target, bool first_contact, std::stop_token stop, NoteCallback on_note)
    : target_(std::move(target)),
      first_contact_(first_contact),
      stop_(std::move(stop)),
      on_note_(std::move(on_note)) {}

std::string Attempts::problem_of(const HttpResult& result) const {
  switch (result.end) {
    case HttpResult::End::kAnswered:
      if (result.head.status < 300) return "the answer ended too early";
      return fmt::format("{} answers with HTTP {}", result.head.origin, result.head.status);
    case HttpResult::End::kUnreachable:
      return fmt::format("{} cannot be reached: {}", result.head.origin, result.problem);
    case HttpResult::End::kCut:
      return fmt::format("the connection broke: {}", result.problem);
    default:
      return result.problem;
  }
}

bool Attempts::failed(const HttpResult& result) {
  if (result.end == HttpResult::End::kStopped || stop_.stop_requested()) return false;
  const std::string problem = problem_of(result);
  if (!is_temporary(result)) {
    throw Error(result.end == HttpResult::End::kAnswered
                    ? hub_internal::refusal_message(target_, result.head)
                    : fmt::format("{}: {}.", target_.shown(), problem));
  }
  ++failures_;
  ++total_;
  const bool unreachable = first_contact_ && result.end == HttpResult::End::kUnreachable;
  if (failures_ >= (unreachable ? kMaxFirstFailures : kMaxFailures) || total_ >= kMaxTotal) {
    throw Error(
        fmt::format("{}: {}, {} times in a row. Run the command again later: it goes on where "
                    "it stopped.",
                    target_.shown(), problem, failures_));
  }
  const int64_t asked = hub_internal::asked_wait_s(result.head);
  if (asked > kMaxAskedWaitS) {
    throw Error(
        fmt::format("{}: {} and asks to wait for {} s. Run the command again then: it goes on "
                    "where it stopped.",
                    target_.shown(), problem, asked));
  }
  const milliseconds delay = kFirstDelay * (1 << (failures_ - 1));
  return wait(problem, asked > 0 ? milliseconds(asked * 1000) : delay);
}

bool Attempts::wait(const std::string& problem, milliseconds time) {
  on_note_(fmt::format("{}: {}; trying again in {:g} s", target_.shown(), problem,
                       static_cast<double>(time.count()) / 1000));
  std::mutex mutex;
  std::condition_variable_any stopped;
  std::unique_lock lock(mutex);
  stopped.wait_for(lock, stop_, time, [] { return false; });
  return !stop_.stop_requested();
}

}  // namespace quire
