#include "loadgen/sse_reader.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

namespace quire::loadgen {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Status = SseReader::Status;

class Events : public SseReader::Sink {
 public:
  bool on_event(std::string_view data) override {
    events.emplace_back(data);
    return events.size() < stop_after;
  }

  std::vector<std::string> events;
  size_t stop_after = 1000000;
};

// What is read of `bytes` when they arrive in pieces of `size`.
std::vector<std::string> read_in_pieces(std::string_view bytes, size_t size) {
  Events sink;
  SseReader reader(sink);
  for (size_t at = 0; at < bytes.size(); at += size) {
    EXPECT_EQ(reader.feed(bytes.substr(at, size)), Status::kOk);
  }
  EXPECT_EQ(reader.finish(), Status::kOk);
  return sink.events;
}

// The same events must come of every way to cut the bytes.
std::vector<std::string> read(std::string_view bytes) {
  const std::vector<std::string> whole = read_in_pieces(bytes, bytes.size());
  for (size_t size = 1; size < bytes.size(); ++size) {
    EXPECT_EQ(read_in_pieces(bytes, size), whole) << "pieces of " << size;
  }
  return whole;
}

TEST(SseReader, ReadsEvents) {
  EXPECT_THAT(read("data: {\"a\":1}\n\ndata: [DONE]\n\n"), ElementsAre("{\"a\":1}", "[DONE]"));
}

TEST(SseReader, TakesEveryEndOfLine) {
  EXPECT_THAT(read("data: a\r\n\r\ndata: b\r\rdata: c\n\n"), ElementsAre("a", "b", "c"));
}

TEST(SseReader, JoinsDataLines) {
  EXPECT_THAT(read("data: a\ndata:\ndata: b\n\n"), ElementsAre("a\n\nb"));
  EXPECT_THAT(read("data:\ndata: b\n\n"), ElementsAre("\nb"));
}

TEST(SseReader, TakesOneSpaceOff) {
  EXPECT_THAT(read("data:a\n\ndata:  b\n\n"), ElementsAre("a", " b"));
}

TEST(SseReader, PassesOverWhatIsNoData) {
  EXPECT_THAT(read(": keep-alive\n\nevent: x\nid: 7\nretry: 10\ndata: a\n\n\n\ndatum: z\n\n: \n\n"),
              ElementsAre("a"));
}

TEST(SseReader, TakesAByteOrderMarkOff) {
  EXPECT_THAT(read("\xef\xbb\xbf"
                   "data: a\n\ndata: \xef\xbb\xbf\n\n"),
              ElementsAre("a", "\xef\xbb\xbf"));
}

TEST(SseReader, HandsOverAnEventWithoutItsEmptyLine) {
  EXPECT_THAT(read("data: a\n\ndata: b\n"), ElementsAre("a", "b"));
  EXPECT_THAT(read("data: a\n\ndata: b"), ElementsAre("a", "b"));
  EXPECT_THAT(read(""), IsEmpty());
}

TEST(SseReader, EmptyDataIsAnEvent) {
  EXPECT_THAT(read("data\n\ndata:\n\n"), ElementsAre("", ""));
}

TEST(SseReader, StopsWhenTheSinkDoes) {
  Events sink;
  sink.stop_after = 1;
  SseReader reader(sink);
  EXPECT_EQ(reader.feed("data: a\n\ndata: b\n\n"), Status::kStopped);
  EXPECT_EQ(reader.feed("data: c\n\n"), Status::kStopped);
  EXPECT_EQ(reader.finish(), Status::kStopped);
  EXPECT_THAT(sink.events, ElementsAre("a"));
}

TEST(SseReader, BoundsALine) {
  Events sink;
  SseReader reader(sink);
  const std::string piece(size_t{1} << 20, 'x');
  Status status = reader.feed("data: ");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(reader.feed(piece), Status::kOk);
  status = reader.feed(piece);
  EXPECT_EQ(status, Status::kTooLong);
  EXPECT_EQ(reader.feed("\n\n"), Status::kTooLong);
  EXPECT_THAT(sink.events, IsEmpty());
}

TEST(SseReader, BoundsTheDataOfAnEvent) {
  Events sink;
  SseReader reader(sink);
  const std::string line = "data: " + std::string(size_t{1} << 20, 'x') + "\n";
  Status status = Status::kOk;
  for (int i = 0; i < 5 && status == Status::kOk; ++i) status = reader.feed(line);
  EXPECT_EQ(status, Status::kTooLong);
}

}  // namespace
}  // namespace quire::loadgen
