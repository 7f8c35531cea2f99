#include "http/io_loop.h"

#include <boost/asio/post.hpp>
#include <exception>
#include <new>
#include <utility>

#include "http/answer.h"
#include "http/connection.h"

namespace quire::http {

IoLoop::IoLoop(Clock::duration tick)
    : work_(boost::asio::make_work_guard(context_)), timer_(context_), tick_(tick) {}

void IoLoop::run() {
  run_until_idle();
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  // What was posted between the two steps above.
  context_.restart();
  run_until_idle();
}

// Connections catch what they throw. What is left is an allocation for the loop itself that failed:
// connections that wait for what was lost end at their deadline; all else is repaired.
void IoLoop::run_until_idle() {
  constexpr std::chrono::milliseconds kBeforeNextTry{10};
  bool is_whole = true;
  while (true) {
    try {
      if (!is_whole) {
        context_.run_for(kBeforeNextTry);
        repair();
        is_whole = true;
      }
      context_.run();
      return;
    } catch (const std::exception&) {
      is_whole = false;
    }
  }
}

void IoLoop::repair() {
  if (!connections_.empty()) start_tick();
  if (repair_) repair_();
}

void IoLoop::finish() {
  post([this] {
    work_.reset();
    timer_.cancel();
  });
}

bool IoLoop::in_this_thread() {
  return context_.get_executor().running_in_this_thread();
}

void IoLoop::post(std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  if (!stopped_) boost::asio::post(context_, std::move(task));
}

void IoLoop::wake(std::shared_ptr<Answer> answer) {
  if (in_this_thread()) {
    answer->flush();
    return;
  }
  const std::lock_guard lock(mutex_);
  if (stopped_) return;
  try {
    woken_.push_back(std::move(answer));
    if (wake_posted_) return;
    boost::asio::post(context_, [this] { serve_woken(); });
    wake_posted_ = true;
  } catch (const std::bad_alloc&) {
    wake_missed_ = true;
  }
}

void IoLoop::serve_woken() {
  {
    const std::lock_guard lock(mutex_);
    serving_.swap(woken_);
    wake_posted_ = false;
  }
  for (auto& answer : serving_) {
    answer->flush();
    answer.reset();
  }
  serving_.clear();
}

void IoLoop::add(std::shared_ptr<Connection> connection) {
  connection->set_index(connections_.size());
  connections_.push_back(std::move(connection));
  start_tick();
}

void IoLoop::remove(Connection& connection) {
  const std::size_t index = connection.index();
  std::shared_ptr<Connection> last = std::move(connections_.back());
  connections_.pop_back();
  if (index == connections_.size()) return;
  last->set_index(index);
  connections_[index].swap(last);
}

void IoLoop::for_each(const std::function<void(Connection&)>& visit) {
  // A visit may remove the one that is visited, whose place the last one takes.
  for (std::size_t i = connections_.size(); i-- > 0;) {
    const std::shared_ptr<Connection> connection = connections_[i];
    visit(*connection);
  }
}

void IoLoop::start_tick() {
  if (ticking_) return;
  timer_.expires_after(tick_);
  timer_.async_wait([this](const boost::system::error_code&) { on_tick(); });
  ticking_ = true;
}

void IoLoop::on_tick() {
  ticking_ = false;
  const Clock::time_point now = Clock::now();
  bool wake_missed = false;
  {
    const std::lock_guard lock(mutex_);
    wake_missed = std::exchange(wake_missed_, false);
  }
  for_each([now, wake_missed](Connection& connection) {
    if (wake_missed) connection.flush();
    connection.check_deadlines(now);
  });
  if (!connections_.empty()) start_tick();
}

}  // namespace quire::http
