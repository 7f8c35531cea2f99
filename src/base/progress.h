#pragma once
// A progress bar on a terminal, for work that takes more than a moment.
//
// Nothing is drawn where the stream is no terminal. The bar takes one line, which it clears when it
// ends, so that what is printed afterwards starts on a clean one.
// Thread safety: one thread at a time.
#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace quire {

// One frame of a bar: `label`, the bar, the share done, the time left, `detail`; at most `width`
// columns, leaving out what does not fit, the detail last. `fraction` is clamped to [0, 1].
std::string render_progress(std::string_view label, double fraction, double elapsed_s,
                            std::string_view detail, int width);

// "7 s", "3:07", "1:02:03".
std::string format_duration(double seconds);

class ProgressBar {
 public:
  // Draws on the file descriptor `fd` if it is a terminal.
  ProgressBar(int fd, std::string label);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  bool visible() const { return visible_; }

  // Draws, but not more than ten times a second. A new label starts the time anew.
  void update(double fraction, std::string_view detail = {});
  void set_label(std::string label);

  // Takes the line away; the next update() draws it again.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;

  int fd_;
  bool visible_;
  bool drawn_ = false;
  std::string label_;
  Clock::time_point start_ = Clock::now();
  std::optional<Clock::time_point> last_draw_;
};

}  // namespace quire
