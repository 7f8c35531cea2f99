#pragma once
// The running generations: starts them, keeps them until they hold nothing any more, and wakes
// those that have outputs to fetch.
//
// Thread safety: the I/O thread.
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "http/exchange.h"
#include "server/generation.h"
#include "server/ready_list.h"
#include "server/service_context.h"

namespace quire::server {

class Generations {
 public:
  // `context` must outlive it.
  explicit Generations(const ServiceContext& context) : context_(context) {}

  // `record` has what is known of the request so far; `headers` go with every answer. Throws
  // ApiError 429 where its key has reached a limit.
  void start(std::shared_ptr<http::Exchange> exchange, RequestKind kind, RequestRecord record,
             http::Headers headers);
  // Fetches the outputs of all that the ready list names.
  void fetch_ready();
  // The facts of a running generation, by its id; nothing where there is none, or it belongs to
  // another owner.
  std::optional<RequestRecord> find(std::string_view request_id, std::string_view owner) const;
  // Ends all generations with what they have.
  void cut_short();

  // Generations that hold anything: waiting, running, or being cancelled.
  size_t size() const { return generations_.size(); }

 private:
  void ended_one(Generation& ended);
  // A copy, because a generation that ends leaves the map.
  std::vector<std::shared_ptr<Generation>> all() const;

  const ServiceContext& context_;
  std::unordered_map<const Generation*, std::shared_ptr<Generation>> generations_;
  std::vector<ReadyList::Entry> ready_entries_;
};

}  // namespace quire::server
