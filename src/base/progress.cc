#include "base/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

namespace quire {
namespace {

constexpr int kMinBarWidth = 10;
constexpr int kMaxBarWidth = 30;
constexpr auto kDrawInterval = std::chrono::milliseconds(100);

int terminal_width(int fd) {
  winsize size{};
  if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

// A terminal that takes nothing more is no reason to fail the work the bar is about.
void write_quietly(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written <= 0) return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

std::string draw_bar(double fraction, int width) {
  const int filled = static_cast<int>(std::lround(fraction * width));
  std::string bar = "[";
  bar.append(static_cast<size_t>(filled), '#');
  bar.append(static_cast<size_t>(width - filled), '.');
  return bar + "]";
}

}  // namespace

std::string format_duration(double seconds) {
  const auto total = static_cast<int64_t>(std::llround(std::clamp(seconds, 0.0, 1e9)));
  if (total < 60) return fmt::format("{} s", total);
  const int64_t minutes = total / 60;
  if (minutes < 60) return fmt::format("{}:{:02}", minutes, total % 60);
  return fmt::format("{}:{:02}:{:02}", minutes / 60, minutes % 60, total % 60);
}

std::string render_progress(std::string_view label, double fraction, double elapsed_s,
                            std::string_view detail, int width) {
  fraction = std::isfinite(fraction) ? std::clamp(fraction, 0.0, 1.0) : 0.0;
  std::string tail = fmt::format(" {:3.0f} %", std::floor(fraction * 100));
  // An estimate from the first moments would only mislead.
  if (fraction > 0.02 && fraction < 1 && elapsed_s > 1) {
    tail += fmt::format("  {} left", format_duration(elapsed_s * (1 - fraction) / fraction));
  }
  std::string line(label);
  const int room = width - static_cast<int>(line.size() + tail.size()) - 3;
  if (room >= kMinBarWidth) {
    // The bar makes room for the detail, but stays a bar.
    const int beside_detail = room - static_cast<int>(detail.size()) - 2;
    const int widest = beside_detail >= kMinBarWidth ? beside_detail : room;
    line += " " + draw_bar(fraction, std::min(widest, kMaxBarWidth));
  }
  line += tail;
  if (!detail.empty() && line.size() + 2 + detail.size() <= static_cast<size_t>(width)) {
    line += fmt::format("  {}", detail);
  }
  if (line.size() > static_cast<size_t>(width))
    line.resize(static_cast<size_t>(std::max(width, 0)));
  return line;
}

ProgressBar::ProgressBar(int fd, std::string label)
    : fd_(fd), visible_(isatty(fd) == 1), label_(std::move(label)) {}

ProgressBar::~ProgressBar() {
  clear();
}

void ProgressBar::update(double fraction, std::string_view detail) {
  if (!visible_) return;
  const Clock::time_point now = Clock::now();
  if (drawn_ && last_draw_ && now - *last_draw_ < kDrawInterval) return;
  last_draw_ = now;
  drawn_ = true;
  const double elapsed_s = std::chrono::duration<double>(now - start_).count();
  // One column stays free: some terminals wrap when the last one is written.
  const std::string line =
      render_progress(label_, fraction, elapsed_s, detail, terminal_width(fd_) - 1);
  write_quietly(fd_, "\r" + line + "\033[K");
}

void ProgressBar::set_label(std::string label) {
  if (label == label_) return;
  label_ = std::move(label);
  start_ = Clock::now();
  last_draw_.reset();
}

void ProgressBar::clear() {
  if (!drawn_) return;
  write_quietly(fd_, "\r\033[K");
  drawn_ = false;
}

}  // namespace quire
