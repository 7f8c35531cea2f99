#pragma once
// The queue of requests that wait for the engine, fair between clients.
//
// Each client has a counter of the service that it got, divided by its weight: the tokens of its
// prompts, and twice the tokens generated for it. The waiting client with the least goes next, so a
// client that floods the server delays only itself. A client that comes back after a pause starts
// level with those that wait, and cannot save up service. (The virtual token counter of Sheng et
// al., "Fairness in Serving Large Language Models", OSDI 2024.) Among the requests of one client,
// lower priority numbers go first, then earlier arrivals.
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

  // `weight` in hundredths, 1 to kMaxClientWeight; a client's newest weight counts.
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

  // The next request: the first one of the least served client for which fits(request) is true.
  // Requests for which passes_over(request) is true are ignored. Nothing where there is none.
  template <typename PassesOver, typename Fits>
  std::optional<Ticket> next(const PassesOver& passes_over, const Fits& fits) const {
    const Client* best = nullptr;
    Ticket best_ticket = 0;
    for (const auto& [name, client] : clients_) {
      auto first = client.items.begin();
      while (first != client.items.end() && passes_over(first->second)) ++first;
      if (first == client.items.end() || !fits(first->second)) continue;
      const Ticket ticket = first->first.second;
      if (best != nullptr &&
          std::pair(best->counter, best_ticket) < std::pair(client.counter, ticket)) {
        continue;
      }
      best = &client;
      best_ticket = ticket;
    }
    if (best == nullptr) return std::nullopt;
    return best_ticket;
  }
  std::optional<Ticket> next() const { return next(none, all); }

  // Requires that it waits.
  const T& at(Ticket ticket) const {
    const Place& place = places_.at(ticket);
    return clients_.at(place.client).items.at(std::pair(place.priority, ticket));
  }
  // Gives this one its turn. Requires that it waits.
  T pop(Ticket ticket) {
    floor_ = std::max(floor_, clients_.at(places_.at(ticket).client).counter);
    return std::move(*remove(ticket));
  }

  // Calls visit(ticket, request) for all, in the order in which they came.
  template <typename Visit>
  void for_each(const Visit& visit) {
    for (const auto& [ticket, place] : places_) {
      visit(ticket, clients_.at(place.client).items.at(std::pair(place.priority, ticket)));
    }
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

  // A client without waiting or running requests is forgotten: it would start level again anyway.
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
  static bool none(const T&) { return false; }
  static bool all(const T&) { return true; }
  // The counter of a new client: that of the least served client that waits, or of the last one
  // that was served.
  int64_t least_waiting_counter() const {
    const std::optional<Ticket> first = next();
    return first ? clients_.at(places_.at(*first).client).counter : floor_;
  }

  std::map<std::string, Client> clients_;
  std::map<Ticket, Place> places_;
  Ticket next_ticket_ = 0;
  int64_t floor_ = 0;
};

}  // namespace quire::server
