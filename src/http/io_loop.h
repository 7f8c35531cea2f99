#pragma once
// One I/O thread: its event loop, the connections that live on it, and those of their answers that
// other threads have written to. A connection never leaves its thread, so none of its state needs a
// lock or a strand, and a write from its own thread goes straight to the socket.
//
// Thread safety: wake(), post(), in_this_thread() and finish() from any thread; add(), remove() and
// for_each() only on the I/O thread; on_exception() before it runs.
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace quire::http {

class Answer;
class Connection;

using Clock = std::chrono::steady_clock;

class IoLoop : public std::enable_shared_from_this<IoLoop> {
 public:
  // Checks connections' deadlines once each `tick`.
  explicit IoLoop(Clock::duration tick);
  IoLoop(const IoLoop&) = delete;
  IoLoop& operator=(const IoLoop&) = delete;

  boost::asio::io_context& context() { return context_; }
  // `repair` is called on the thread after an exception, until it does not throw itself: without
  // memory Asio forgets what it waits for. Before run().
  void on_exception(std::function<void()> repair) { repair_ = std::move(repair); }

  // The thread's body: returns when finish() was called and nothing is left to do.
  void run();
  void finish();

  bool in_this_thread();
  // Runs `task` on the thread, never inside this call; drops it after run() has returned.
  void post(std::function<void()> task);
  // Lets the answer's connection send what is queued: at once on the I/O thread, else soon. The
  // thread is woken once for any number of answers; without memory for that, at the next tick.
  void wake(std::shared_ptr<Answer> answer);

  void add(std::shared_ptr<Connection> connection);
  void remove(Connection& connection);
  void for_each(const std::function<void(Connection&)>& visit);

 private:
  void run_until_idle();
  void repair();
  void serve_woken();
  void start_tick();
  void on_tick();

  boost::asio::io_context context_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  boost::asio::steady_timer timer_;
  const Clock::duration tick_;
  bool ticking_ = false;
  std::function<void()> repair_;
  std::vector<std::shared_ptr<Connection>> connections_;

  std::mutex mutex_;
  bool stopped_ = false;
  bool wake_posted_ = false;
  bool wake_missed_ = false;  // an answer waits whose wake-up had no memory
  std::vector<std::shared_ptr<Answer>> woken_;
  std::vector<std::shared_ptr<Answer>> serving_;  // the I/O thread's; keeps its capacity
};

}  // namespace quire::http
