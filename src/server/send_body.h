#pragma once
// Sends a whole answer that may be large: at once if it is small, else piece by piece as the client
// reads, each piece made on a worker thread as a task of `client`. At most two pieces are in
// memory.
//
// Thread safety: from any thread.
#include <memory>
#include <string>

#include "http/exchange.h"
#include "server/answer/body_source.h"
#include "server/worker_pool.h"

namespace quire::server {

// Answers `exchange` with `head` and a body: `first`, then the pieces of `body`, which may be null.
// If a piece cannot be made or sent, the connection is cut off, so that the client can tell; if
// this throws, nothing has been answered. `body` is destroyed when its last piece is made or the
// client has gone. `workers` must outlive the exchange's server. Not for answers to HEAD.
void send_body(std::shared_ptr<http::Exchange> exchange, http::Response head, std::string first,
               std::shared_ptr<BodySource> body, WorkerPool& workers, std::string client);

}  // namespace quire::server
