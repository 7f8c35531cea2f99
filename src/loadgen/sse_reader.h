#pragma once
// Server-sent events out of bytes that arrive in pieces of any size.
//
// The format is that of the HTML standard ("9.2.6 Interpreting an event stream"): lines end in LF,
// CR LF or CR; an empty line ends an event; the "data" lines of an event are joined by LF; lines
// that open with a colon are comments. Names and ids of events are not kept: OpenAI's API has none.
// An event that lies whole in one piece is handed over in place, without a copy.
// Thread safety: one thread at a time.
#include <cstddef>
#include <string>
#include <string_view>

namespace quire::loadgen {

class SseReader {
 public:
  // The most bytes that one line, or the data of one event, may have.
  static constexpr size_t kMaxEventBytes = size_t{4} << 20;

  class Sink {
   public:
    virtual ~Sink() = default;
    // One event with data. False stops the reader for good.
    virtual bool on_event(std::string_view data) = 0;
  };

  enum class Status {
    kOk,
    kStopped,  // the sink wants no more
    kTooLong,  // a line or an event is over kMaxEventBytes
  };

  explicit SseReader(Sink& sink) : sink_(sink) {}

  // Takes the next bytes. Once it returned another status than kOk, it returns that again.
  Status feed(std::string_view bytes);

  // The stream has ended normally. Hands over an event whose empty line is missing; the standard
  // would drop it, but some servers leave that line out.
  Status finish();

 private:
  void take_line(std::string_view line);
  void add_data(std::string_view data);
  void end_event();
  void keep_view();

  Sink& sink_;
  std::string line_;       // the start of a line whose end has not arrived
  std::string data_;       // of the current event, unless view_ has it
  std::string_view view_;  // the only data line so far, in the bytes being fed
  size_t num_data_lines_ = 0;
  bool at_start_ = true;         // a byte order mark may come
  bool skip_line_feed_ = false;  // the last line ended in CR
  Status status_ = Status::kOk;
};

}  // namespace quire::loadgen
