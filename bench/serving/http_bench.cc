// How many streamed pieces a second the HTTP server carries for each core that it uses, over the
// loopback, to a reader in the same process.
//
//   http_bench [STREAMS [SECONDS]]      64 and 1000 streams, 3 s each, where none is named
//
// `posted`: a thread that plays the engine posts a batch, one piece for each stream, to the I/O
// thread, which writes it. `written`: that thread writes each piece itself. The core time counted
// is that of the I/O thread and of the one that writes, not the reader's.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <future>
#include <iterator>
#include <memory>
#include <mutex>
#include <semaphore>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "http/server.h"

namespace {

using quire::http::Exchange;
using quire::http::Server;

// About what a token's chat completion chunk takes.
const std::string kPiece = "data: " + std::string(200, 'x') + "\n\n";

double thread_cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Runs `task` on the I/O thread and waits for it.
void on_io_thread(Server& server, const std::function<void()>& task) {
  std::promise<void> done;
  server.post([&] {
    task();
    done.set_value();
  });
  done.get_future().wait();
}

double io_cpu_seconds(Server& server) {
  double seconds = 0;
  on_io_thread(server, [&] { seconds = thread_cpu_seconds(); });
  return seconds;
}

// Reads all connections from one thread and counts what comes.
class Reader {
 public:
  Reader(uint16_t port, int streams) : epoll_(epoll_create1(0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    constexpr std::string_view kRequest = "GET / HTTP/1.1\r\nHost: bench\r\n\r\n";
    for (int i = 0; i < streams; ++i) {
      const int fd = socket(AF_INET, SOCK_STREAM, 0);
      epoll_event event{};
      event.events = EPOLLIN;
      event.data.fd = fd;
      if (connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0 ||
          send(fd, kRequest.data(), kRequest.size(), MSG_NOSIGNAL) < 0 ||
          epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0) {
        std::perror("http_bench: cannot connect");
        std::exit(1);
      }
      fds_.push_back(fd);
    }
    thread_ = std::thread([this] { read_all(); });
  }
  ~Reader() {
    stop_ = true;
    thread_.join();
    for (const int fd : fds_) close(fd);
    close(epoll_);
  }
  int64_t bytes() const { return bytes_; }

 private:
  void read_all() {
    std::vector<char> buffer(256 << 10);
    epoll_event events[64];
    while (!stop_) {
      const int n = epoll_wait(epoll_, events, static_cast<int>(std::size(events)), 50);
      for (int i = 0; i < n; ++i) {
        const ssize_t got = recv(events[i].data.fd, buffer.data(), buffer.size(), 0);
        if (got > 0) bytes_ += got;
      }
    }
  }

  int epoll_;
  std::vector<int> fds_;
  std::atomic<bool> stop_{false};
  std::atomic<int64_t> bytes_{0};
  std::thread thread_;
};

// The server's side of all streams.
class Streams {
 public:
  void add(std::shared_ptr<Exchange> exchange) {
    exchange->begin_stream({});
    const std::lock_guard lock(mutex_);
    exchanges_.push_back(std::move(exchange));
    added_.notify_all();
  }
  void wait_for(std::size_t count) {
    std::unique_lock lock(mutex_);
    added_.wait(lock, [&] { return exchanges_.size() == count; });
  }
  // One piece for each stream that takes more.
  int64_t write_batch() {
    int64_t written = 0;
    for (const auto& exchange : exchanges_) {
      if (exchange->buffered() > Exchange::kStreamHighWater) continue;
      exchange->write(kPiece);
      ++written;
    }
    return written;
  }
  void finish() {
    for (const auto& exchange : exchanges_) exchange->finish();
    exchanges_.clear();
  }

 private:
  std::mutex mutex_;
  std::condition_variable added_;
  std::vector<std::shared_ptr<Exchange>> exchanges_;
};

struct Work {
  int64_t pieces = 0;
  double writer_cpu_seconds = 0;
};

// Like an engine that does not wait for its clients: the next batch is posted while kAhead are
// still on their way. Pieces that meet a write under way share the next one.
Work write_posted(Server& server, Streams& streams, std::chrono::steady_clock::time_point end) {
  constexpr std::ptrdiff_t kAhead = 8;
  std::counting_semaphore<kAhead> ahead(kAhead);
  Work work;
  const double before = thread_cpu_seconds();
  while (std::chrono::steady_clock::now() < end) {
    ahead.acquire();
    server.post([&] {
      work.pieces += streams.write_batch();
      ahead.release();
    });
  }
  work.writer_cpu_seconds = thread_cpu_seconds() - before;
  on_io_thread(server, [] {});  // behind the last batch
  return work;
}

Work write_directly(Streams& streams, std::chrono::steady_clock::time_point end) {
  Work work;
  const double before = thread_cpu_seconds();
  while (std::chrono::steady_clock::now() < end) {
    const int64_t written = streams.write_batch();
    work.pieces += written;
    if (written == 0) std::this_thread::yield();
  }
  work.writer_cpu_seconds = thread_cpu_seconds() - before;
  return work;
}

void run(const char* name, bool posted, int num_streams, int seconds) {
  Streams streams;
  quire::http::Config config;
  config.port = 0;
  Server server(config,
                [&](std::shared_ptr<Exchange> exchange) { streams.add(std::move(exchange)); });
  server.start();
  Reader reader(server.port(), num_streams);
  streams.wait_for(static_cast<std::size_t>(num_streams));
  const double io_before = io_cpu_seconds(server);
  const auto start = std::chrono::steady_clock::now();
  const auto end = start + std::chrono::seconds(seconds);
  const Work work = posted ? write_posted(server, streams, end) : write_directly(streams, end);
  const double io_cpu = io_cpu_seconds(server) - io_before;
  const double wall =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const double cpu = io_cpu + work.writer_cpu_seconds;
  const auto pieces = static_cast<double>(work.pieces);
  std::printf("%-8s %5d streams: %8.0f pieces/s, %8.0f a core (I/O %.2f s, writer %.2f s)\n", name,
              num_streams, pieces / wall, pieces / cpu, io_cpu, work.writer_cpu_seconds);
  std::fflush(stdout);
  streams.finish();
}

}  // namespace

int main(int argc, char** argv) {
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  std::vector<int> counts = {64, 1000};
  if (argc > 1) counts = {std::atoi(argv[1])};
  const int seconds = argc > 2 ? std::atoi(argv[2]) : 3;
  if (counts.front() < 1 || seconds < 1) {
    std::fputs("usage: http_bench [STREAMS [SECONDS]]\n", stderr);
    return 2;
  }
  for (const int count : counts) {
    run("posted", true, count, seconds);
    run("written", false, count, seconds);
  }
  return 0;
}
