#pragma once
// The queue of requests that wait for the engine, fair between clients.
//
// Each client has a counter of the service that it got, divided by its weight: tokens of its
// prompts, and twice the tokens generated for it. Whoever waits with the least goes next, so a
// client that floods the server delays only itself; a client that comes back after a pause starts
// level with those that wait, and cannot save up service. (The virtual token counter of Sheng et
// al., "Fairness in Serving Large Language Models", OSDI 2024.) Among the requests of one client,
// lower priority numbers go first, then those that came first.
//
// Thread safety: one thread at a time.
#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "quire/engine_limits.h"

namespace quire::server {

template <typename T>
class FairQueue {
 public:
  using Ticket = uint64_t;

  // `weight` in hundredths, 1 to kMaxClientWeight; the newest of a client counts.
  Ticket push(const std::string& client, int64_t priority, T item,
              int32_t weight = kDefaultClientWeight) {
    Client& queue = clients_[client];
    queue.weight = weight;
    if (queue.items.empty()) queue.counter = std::max(queue.counter, least_waiting_counter());
    const Ticket ticket = next_ticket_++;
    const auto place = places_.emplace(ticket, Place{client, priority}).first;
    try {
      queue.items.emplace(std::pair(priority, ticket), std::move(item));
    } catch (...) {
      places_.erase(place);
      throw;
    }
    return ticket;
  }

  bool empty() const { return places_.empty(); }
  size_t size() const { return places_.size(); }

  // The next request; nothing where none waits. It stays until pop().
  const T* front() const {
    const auto client = next_client();
    return client == clients_.end() ? nullptr : &client->second.items.begin()->second;
  }

  // Requires that one waits.
  T pop() { return pop(clients_.find(next_client()->first)); }

  // The first request of the least served client whose first request fits: fits(request) is true.
  // Nothing where there is none.
  template <typename Fits>
  std::optional<T> pop_if(const Fits& fits) {
    auto best = clients_.end();
    for (auto it = clients_.begin(); it != clients_.end(); ++it) {
      if (it->second.items.empty() || !fits(it->second.items.begin()->second)) continue;
      if (best == clients_.end() || before(it->second, best->second)) best = it;
    }
    if (best == clients_.end()) return std::nullopt;
    return pop(best);
  }

  // Takes a request out of the middle; nothing if it is not waiting.
  std::optional<T> remove(Ticket ticket) {
    const auto place = places_.find(ticket);
    if (place == places_.end()) return std::nullopt;
    const auto client = clients_.find(place->second.client);
    auto node = client->second.items.extract(std::pair(place->second.priority, ticket));
    places_.erase(place);
    return std::move(node.mapped());
  }

  // Adds to what a client got.
  void charge(const std::string& client, int64_t service) {
    const auto it = clients_.find(client);
    if (it == clients_.end()) return;
    constexpr int64_t kUnit = int64_t{kDefaultClientWeight} * kMaxClientWeight;
    it->second.counter += service * kUnit / it->second.weight;
  }

  // A client is forgotten when nothing of it waits or runs: it would start level again anyway.
  void forget(const std::string& client) {
    const auto it = clients_.find(client);
    if (it != clients_.end() && it->second.items.empty()) clients_.erase(it);
  }

  size_t num_clients() const { return clients_.size(); }

 private:
  struct Client {
    int64_t counter = 0;
    int32_t weight = kDefaultClientWeight;
    std::map<std::pair<int64_t, Ticket>, T> items;  // by priority, then arrival
  };
  struct Place {
    std::string client;
    int64_t priority = 0;
  };
  using Clients = std::map<std::string, Client>;

  T pop(typename Clients::iterator client) {
    auto node = client->second.items.extract(client->second.items.begin());
    places_.erase(node.key().second);
    floor_ = std::max(floor_, client->second.counter);
    return std::move(node.mapped());
  }

  // Of clients that are level, the one whose first request came first.
  typename Clients::const_iterator next_client() const {
    auto best = clients_.end();
    for (auto it = clients_.begin(); it != clients_.end(); ++it) {
      if (it->second.items.empty()) continue;
      if (best == clients_.end() || before(it->second, best->second)) best = it;
    }
    return best;
  }
  static bool before(const Client& a, const Client& b) {
    return std::pair(a.counter, a.items.begin()->first.second) <
           std::pair(b.counter, b.items.begin()->first.second);
  }
  // Where a client starts: level with the least served of those that wait, or with the last one
  // that was served.
  int64_t least_waiting_counter() const {
    const auto client = next_client();
    return client == clients_.end() ? floor_ : client->second.counter;
  }

  Clients clients_;
  std::map<Ticket, Place> places_;
  Ticket next_ticket_ = 0;
  int64_t floor_ = 0;
};

}  // namespace quire::server
