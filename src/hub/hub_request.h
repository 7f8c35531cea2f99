#pragma once
// What is asked of the hub, whether a failed attempt is worth another one, and what to tell the
// user if not.
//
// Thread safety: one thread at a time.
#include <chrono>
#include <functional>
#include <stop_token>
#include <string>

#include "hub/hub_client.h"
#include "hub/hub_settings.h"

namespace quire {

// What is being asked for, for messages.
struct HubTarget {
  std::string endpoint;
  std::string repository;
  std::string revision;
  std::string file;  // empty: the list of files
  bool has_token = false;

  // "org/name: config.json", or "org/name".
  std::string shown() const;
};

using NoteCallback = std::function<void(const std::string&)>;

// Counts failures, and waits longer after each: 0.5 s, 1, 2, 4, 8; or as long as the hub asks for,
// if that is at most five minutes.
class Attempts {
 public:
  // `on_note` is told the reason and the length of each wait. `first_contact`: an unreachable hub
  // gets less patience, because probably there is no network, or the name is wrong.
  Attempts(HubTarget target, bool first_contact, std::stop_token stop, NoteCallback on_note);

  // The last attempt made progress: the count starts again.
  void progressed() { failures_ = 0; }

  // Handles a failed attempt: waits and returns true if another one should follow; returns false if
  // stopped. Throws Error if there is no point: the hub refuses, or it has failed too often.
  bool failed(const HttpResult& result);

 private:
  std::string problem_of(const HttpResult& result) const;
  bool wait(const std::string& problem, std::chrono::milliseconds time);

  HubTarget target_;
  bool first_contact_;
  std::stop_token stop_;
  NoteCallback on_note_;
  int failures_ = 0;  // in a row
  int total_ = 0;
};

namespace hub_internal {

// The seconds that the hub asks to wait with a 429 or 503; 0: it does not.
int64_t asked_wait_s(const HttpHead& head);

// The sentence for a refusal that trying again does not help against.
std::string refusal_message(const HubTarget& target, const HttpHead& head);

}  // namespace hub_internal
}  // namespace quire
