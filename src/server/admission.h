#pragma once
// Decides which requests are accepted, which wait, and which go to the engine next.
//
// The engine gets only as many requests as it can run soon; the others wait here and are picked
// fairly (fair_queue.h). The engine shares its places between the clients that it knows, so a
// client that has less than its share of them never waits here for others.
//
// Requests with adapters wait here until their adapter has room. Those in the engine have at most
// max_loras different adapters, so none of them waits in the engine for its adapter, in front of
// others, and the weights of at most max_loras adapters are held. The first request of an adapter
// has it read; the others wait until that is done. A request that was passed by kMaxLoraOvertakes
// requests with adapters, because others had the room, is the next one with an adapter.
//
// When too many wait, a request is refused at once, with the time after which a place is likely to
// be free.
//
// Thread safety: one thread at a time, the I/O thread.
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "quire/engine_limits.h"
#include "server/api/api_error.h"
#include "server/engine_port.h"
#include "server/fair_queue.h"

namespace quire::server {

struct AdmissionConfig {
  int64_t max_num_queued_requests = 2048;  // that wait, >= 0
  int64_t max_num_seqs = 512;              // as the engine's
  int64_t max_loras = 0;                   // as the engine's; 0: as many as come
};

class Admission {
 public:
  using Clock = std::chrono::steady_clock;
  using Ticket = uint64_t;
  static constexpr int64_t kMaxLoraOvertakes = 64;
  struct Waiting {
    std::string client;
    int64_t num_sequences = 1;
    int64_t num_prompt_tokens = 0;          // in all
    std::function<void()> start;            // its turn has come; must not throw
    int32_t weight = kDefaultClientWeight;  // of the client
    std::string adapter{};                  // empty: none
  };

  // `engine` must outlive it.
  Admission(AdmissionConfig config, const EnginePort& engine) : config_(config), engine_(engine) {}

  // A request has arrived and is being prepared. Throws ApiError 429 where the queue is full, 503
  // while the server shuts down; `reason` then gets the value for RequestRecord::reject_reason.
  void arrive(std::string& reason);
  // The request was malformed, or its client has gone.
  void turn_away() { --num_preparing_; }
  // The request is prepared and waits for its turn, which pump() gives it. If this throws, it does
  // not wait, and still counts as being prepared.
  Ticket enqueue(Waiting waiting, int64_t priority);
  // The request leaves the queue without having had its turn; false if it had it.
  bool leave(Ticket ticket);
  // A request that had its turn is over, and gives its place in the engine back.
  void finished(const std::string& client, int64_t num_sequences, Clock::time_point now,
                const std::string& adapter = {});
  // The adapter of a request that had its turn is in memory: others that name it need not wait.
  void adapter_is_read(const std::string& adapter);
  // Tokens were generated for a client.
  void charge_output(const std::string& client, int64_t num_tokens);

  // Gives turns while the engine has room. Call it whenever something was enqueued, finished, or
  // came out of the engine. It needs no memory; otherwise a turn might never be given.
  void pump();

  // Adds the requests that wait here until adapters have room.
  void add_to(LoraStats& stats);

  // From now on arrive() refuses; what has been accepted goes on.
  void shut_down() { shutting_down_ = true; }

  int64_t num_queued() const { return static_cast<int64_t>(queue_.size()) + num_preparing_; }
  // Seconds after which one more request is likely to get its turn, 1 to 600.
  int64_t retry_after_s() const;

 private:
  // Requests that had their turn and are not over, and the number of their sequences.
  struct InEngine {
    int64_t num_requests = 0;
    int64_t num_sequences = 0;
    int32_t weight = 0;
  };
  struct AdapterInEngine {
    int64_t num_requests = 0;
    bool is_read = false;
  };
  // A waiting request, with the map entries that it needs if its client or adapter has none yet.
  struct Turn {
    Waiting waiting;
    std::map<std::string, InEngine>::node_type seat;
    std::map<std::string, AdapterInEngine>::node_type adapter_seat;  // where it has an adapter
    // num_adapters_begun_ when others had all room for adapters; nothing where its own has some.
    std::optional<int64_t> passed_since{};
    bool waited = false;  // it had such a time
  };
  bool has_room(int64_t num_sequences) const;
  bool adapter_has_room(const std::string& adapter) const;
  // The first request that was passed too often because its adapter had no room.
  std::optional<Ticket> find_overdue();
  std::optional<Ticket> choose_next();
  void give_turn(Turn turn);
  // Whether a client has so little in the engine that it need not wait for others.
  bool has_less_than_its_part(const Waiting& waiting) const;

  AdmissionConfig config_;
  const EnginePort& engine_;
  FairQueue<Turn> queue_;
  std::map<std::string, InEngine> in_engine_;        // by client
  std::map<std::string, AdapterInEngine> adapters_;  // by name
  int64_t num_waiting_with_adapters_ = 0;
  int64_t num_adapters_begun_ = 0;  // requests with adapters that had their turn
  int64_t num_lora_waits_ = 0;      // sequences that waited because others had all room
  int64_t num_preparing_ = 0;
  int64_t num_in_engine_ = 0;  // sequences
  bool shutting_down_ = false;
  bool pumping_ = false;
  // The measured rate at which requests finish: the mean gap between two ends, newer ones counting
  // more.
  double gap_s_ = 0;
  Clock::time_point last_end_{};
};

}  // namespace quire::server
