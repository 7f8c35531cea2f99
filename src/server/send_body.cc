#include "server/send_body.h"

#include <exception>
#include <functional>
#include <string>
#include <utility>

namespace quire::server {
namespace {

// A piece is larger than what an exchange calls full, so that each one is followed by one on_drain.
static_assert(BodySource::kPieceBytes > http::Exchange::kStreamHighWater);

// Makes the next piece on a worker whenever the one before has gone out. Held by the exchange's
// on_drain, which is dropped when the answer ends.
class PieceSender : public std::enable_shared_from_this<PieceSender> {
 public:
  PieceSender(std::shared_ptr<http::Exchange> exchange, std::shared_ptr<BodySource> body,
              WorkerPool& workers, std::string client)
      : exchange_(std::move(exchange)),
        body_(std::move(body)),
        workers_(workers),
        client_(std::move(client)) {}

  void start(http::Response head, std::string first) {
    const auto self = shared_from_this();
    exchange_->on_drain([self] { self->make_next(); });
    try {
      exchange_->begin_stream(std::move(head));
    } catch (...) {
      exchange_->on_drain({});
      throw;
    }
    try {
      exchange_->write(std::move(first));
    } catch (const std::exception&) {
      exchange_->on_drain({});  // lets go of the exchange, which cuts it off
    }
  }

 private:
  void make_next() {
    const auto make = [self = shared_from_this()] {
      if (self->exchange_->closed()) return;
      try {
        self->send_next();
      } catch (const std::exception&) {
        self->exchange_->on_drain({});  // lets go of the exchange, which cuts it off
      }
    };
    workers_.run(make, client_);
  }

  // The last write() or finish() may have another thread go on at once: nothing comes behind it.
  void send_next() {
    std::string piece = body_->next_piece();
    if (body_->more_follows()) {
      exchange_->write(std::move(piece));
      return;
    }
    body_.reset();
    exchange_->on_drain({});
    exchange_->write(std::move(piece));
    exchange_->finish();
  }

  std::shared_ptr<http::Exchange> exchange_;
  std::shared_ptr<BodySource> body_;
  WorkerPool& workers_;
  const std::string client_;
};

}  // namespace

void send_body(std::shared_ptr<http::Exchange> exchange, http::Response head, std::string first,
               std::shared_ptr<BodySource> body, WorkerPool& workers, std::string client) {
  if (body == nullptr || !body->more_follows()) {
    head.body = std::move(first);
    exchange->respond(std::move(head));
    return;
  }
  std::make_shared<PieceSender>(std::move(exchange), std::move(body), workers, std::move(client))
      ->start(std::move(head), std::move(first));
}

}  // namespace quire::server
