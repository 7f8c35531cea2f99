#include "loadgen/sse_reader.h"

#include <algorithm>

namespace quire::loadgen {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

}  // namespace

SseReader::Status SseReader::feed(std::string_view bytes) {
  while (status_ == Status::kOk && !bytes.empty()) {
    if (skip_line_feed_) {
      skip_line_feed_ = false;
      if (bytes.front() == '\n') {
        bytes.remove_prefix(1);
        continue;
      }
    }
    // Two searches of a byte are much faster than one for either of two.
    size_t end = bytes.find('\n');
    end = std::min(end, bytes.substr(0, end).find('\r'));
    const std::string_view piece = bytes.substr(0, end);
    if (line_.size() + piece.size() > kMaxEventBytes) {
      status_ = Status::kTooLong;
      break;
    }
    if (end == std::string_view::npos) {
      line_ += piece;
      break;
    }
    skip_line_feed_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    if (line_.empty()) {
      take_line(piece);
    } else {
      line_ += piece;
      take_line(line_);
      keep_view();
      line_.clear();
    }
  }
  keep_view();
  return status_;
}

SseReader::Status SseReader::finish() {
  if (status_ == Status::kOk && !line_.empty()) {
    take_line(line_);
    keep_view();
    line_.clear();
  }
  if (status_ == Status::kOk) end_event();
  return status_;
}

void SseReader::take_line(std::string_view line) {
  if (at_start_) {
    at_start_ = false;
    if (line.starts_with(kByteOrderMark)) line.remove_prefix(kByteOrderMark.size());
  }
  if (line.empty()) {
    end_event();
    return;
  }
  constexpr std::string_view kData = "data";
  if (!line.starts_with(kData)) return;
  line.remove_prefix(kData.size());
  if (line.empty()) {
    add_data(line);
  } else if (line.front() == ':') {
    line.remove_prefix(1);
    if (line.starts_with(' ')) line.remove_prefix(1);
    add_data(line);
  }
}

void SseReader::add_data(std::string_view data) {
  if (++num_data_lines_ == 1) {
    view_ = data;
    return;
  }
  keep_view();
  if (data_.size() + 1 + data.size() > kMaxEventBytes) {
    status_ = Status::kTooLong;
    return;
  }
  data_ += '\n';
  data_ += data;
}

void SseReader::end_event() {
  if (num_data_lines_ == 0) return;
  const bool go_on = sink_.on_event(data_.empty() ? view_ : data_);
  num_data_lines_ = 0;
  view_ = {};
  data_.clear();
  if (!go_on) status_ = Status::kStopped;
}

void SseReader::keep_view() {
  data_ += view_;
  view_ = {};
}

}  // namespace quire::loadgen
