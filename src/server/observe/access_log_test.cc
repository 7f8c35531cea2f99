#include "server/observe/access_log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "server/observe/access_log_format.h"
#include "server/observe/access_log_text.h"

namespace quire::server {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr auto kLong = std::chrono::minutes(1);

// Both ends of a pipe.
struct Pipe {
  Pipe() {
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
    out = ends[0];
    in = ends[1];
  }
  ~Pipe() {
    close_out();
    close_in();
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  void close_in() { close_once(in); }
  void close_out() { close_once(out); }
  static void close_once(int& fd) {
    if (fd >= 0) close(fd);
    fd = -1;
  }
  // Everything until the writing end is closed.
  std::string read_all() const {
    std::string text;
    std::array<char, 4096> buffer{};
    ssize_t size = 0;
    while ((size = read(out, buffer.data(), buffer.size())) > 0) {
      text.append(buffer.data(), static_cast<size_t>(size));
    }
    return text;
  }

  int out = -1;
  int in = -1;
};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

RequestRecord generation() {
  RequestRecord record;
  record.request_id = "cmpl-1";
  record.arrived = std::chrono::system_clock::time_point(std::chrono::milliseconds(1763709402123));
  record.method = "POST";
  record.path = "/v1/completions";
  record.model = "lexicon";
  record.client = "key:1a2b3c4d";
  record.owner = "owner-hash";
  record.status = 200;
  record.finish_reason = "length";
  record.stream = true;
  record.max_tokens = 64;
  record.temperature = 0.7;
  record.prompt_tokens = 120;
  record.cached_tokens = 96;
  record.output_tokens = 64;
  record.queue_s = 0.012;
  record.prefill_s = 0.0801;
  record.decode_s = 0.719;
  record.ttft_s = 0.093;
  record.total_s = 0.8123;
  return record;
}

TEST(AccessLine, Text) {
  EXPECT_EQ(format_access_line(generation(), LogFormat::kText),
            "2025-11-21T07:16:42.123Z info    POST /v1/completions 200 812.3ms id=cmpl-1 "
            "client=key:1a2b3c4d model=lexicon finish=length prompt=120 cached=96 output=64 "
            "queue=12.0ms prefill=80.1ms decode=719.0ms ttft=93.0ms n=1 max_tokens=64 "
            "temperature=0.7 stream");
}

TEST(AccessLine, TextLeavesOutWhatThereIsNot) {
  RequestRecord record;
  record.method = "GET";
  record.path = "/health";
  record.client = "127.0.0.1";
  record.status = 200;
  EXPECT_THAT(format_access_line(record, LogFormat::kText),
              EndsWith(" info    GET /health 200 0.0ms client=127.0.0.1"));
}

TEST(AccessLine, Json) {
  const auto line = nlohmann::json::parse(format_access_line(generation(), LogFormat::kJson));
  EXPECT_EQ(line["time"], "2025-11-21T07:16:42.123Z");
  EXPECT_EQ(line["level"], "info");
  EXPECT_EQ(line["event"], "request");
  EXPECT_EQ(line["request_id"], "cmpl-1");
  EXPECT_EQ(line["client"], "key:1a2b3c4d");
  EXPECT_EQ(line["status"], 200);
  EXPECT_EQ(line["stream"], true);
  EXPECT_EQ(line["finish_reason"], "length");
  EXPECT_EQ(line["prompt_tokens"], 120);
  EXPECT_EQ(line["cached_tokens"], 96);
  EXPECT_EQ(line["output_tokens"], 64);
  EXPECT_EQ(line["prefill_ms"], 80.1);
  EXPECT_EQ(line["total_ms"], 812.3);
  EXPECT_EQ(line["max_tokens"], 64);
  EXPECT_TRUE(line["top_p"].is_null());
  EXPECT_TRUE(line["error"].is_null());
  EXPECT_TRUE(line["reject_reason"].is_null());
}

TEST(AccessLine, AllFacts) {
  RequestRecord record = generation();
  record.steps = 70;
  record.preemptions = 1;
  record.running_at_arrival = 8;
  record.waiting_at_arrival = 3;
  const std::string facts =
      " stream steps=70 preemptions=1 first_token=2025-11-21T07:16:42.216Z "
      "last_token=2025-11-21T07:16:42.935Z running_before=8 waiting_before=3";
  EXPECT_THAT(format_access_line(record, LogFormat::kText, false, LineDetail::kAllFacts),
              EndsWith(facts));
  record.draft_tokens = 12;
  record.accepted_draft_tokens = 9;
  EXPECT_THAT(format_access_line(record, LogFormat::kText, false, LineDetail::kAllFacts),
              HasSubstr(" preemptions=1 drafts=12 accepted=9 "));
  const auto line = nlohmann::json::parse(
      format_access_line(record, LogFormat::kJson, false, LineDetail::kAllFacts));
  EXPECT_EQ(line["steps"], 70);
  EXPECT_EQ(line["preemptions"], 1);
  EXPECT_EQ(line["draft_tokens"], 12);
  EXPECT_EQ(line["accepted_draft_tokens"], 9);
  EXPECT_EQ(line["first_token_at"], "2025-11-21T07:16:42.216Z");
  EXPECT_EQ(line["last_token_at"], "2025-11-21T07:16:42.935Z");
  EXPECT_EQ(line["running_at_arrival"], 8);
  EXPECT_EQ(line["waiting_at_arrival"], 3);
  EXPECT_EQ(line["prompt_tokens"], 120) << "and what the usual line says";
}

TEST(AccessLine, NeverHoldsTheOwner) {
  for (const LogFormat format : {LogFormat::kText, LogFormat::kJson}) {
    EXPECT_THAT(format_access_line(generation(), format), Not(HasSubstr("owner-hash")));
  }
}

TEST(AccessLine, LevelSaysWhatToLookAt) {
  const auto level = [](int status) {
    RequestRecord record = generation();
    record.status = status;
    return nlohmann::json::parse(format_access_line(record, LogFormat::kJson))["level"]
        .get<std::string>();
  };
  EXPECT_EQ(level(400), "info");
  EXPECT_EQ(level(499), "info");
  EXPECT_EQ(level(429), "warning");
  EXPECT_EQ(level(503), "warning");
  EXPECT_EQ(level(500), "error");
}

TEST(AccessLine, ColorsOnlyWhenAsked) {
  EXPECT_THAT(format_access_line(generation(), LogFormat::kText), Not(HasSubstr("\x1b")));
  EXPECT_THAT(format_access_line(generation(), LogFormat::kText, true),
              HasSubstr("\x1b[32m200\x1b[0m"));
  EXPECT_THAT(format_access_line(generation(), LogFormat::kJson, true), Not(HasSubstr("\x1b")));
}

// What clients and their parameters may hold.
const std::vector<std::string>& hostile() {
  static const std::vector<std::string> texts = {
      "a\n2026-01-01T00:00:00.000Z error   forged",
      "a\r\n{\"forged\":1}",
      "a\",\"status\":200,\"x\":\"",
      "\x1b[2J\x1b]0;title\x07",
      std::string("nul\0nul", 7),
      "\xff\xfe\xc0\x80\xed\xa0\x80\xf4\x90\x80\x80\xe2\x82",
      "\xe2\x80\xae"
      "txt.exe\xe2\x80\xa8\xe2\x81\xa6\xef\xbb\xbf\xc2\x85\xf3\xa0\x81\x81",
      "back\\slash \"quote\" =x",
      std::string(1 << 20, 'x'),
      std::string(1 << 16, '\n'),
  };
  return texts;
}

RequestRecord hostile_record(const std::string& text) {
  RequestRecord record = generation();
  for (std::string* field :
       {&record.request_id, &record.method, &record.path, &record.model, &record.client,
        &record.finish_reason, &record.reject_reason, &record.error}) {
    *field = text;
  }
  return record;
}

bool is_printable(const std::string& line) {
  return std::all_of(line.begin(), line.end(),
                     [](unsigned char c) { return c >= 0x20 && c != 0x7F; });
}

TEST(AccessLine, HostileTextStaysInItsField) {
  const size_t num_fields =
      nlohmann::json::parse(format_access_line(generation(), LogFormat::kJson)).size();
  for (const std::string& text : hostile()) {
    const RequestRecord record = hostile_record(text);
    const std::string json_line = format_access_line(record, LogFormat::kJson);
    EXPECT_TRUE(is_printable(json_line));
    const auto json = nlohmann::json::parse(json_line);  // valid UTF-8, too
    EXPECT_EQ(json.size(), num_fields);
    EXPECT_EQ(json["status"], 200);
    EXPECT_LT(json_line.size(), 64 << 10);

    const std::string line = format_access_line(record, LogFormat::kText);
    EXPECT_TRUE(is_printable(line));
    EXPECT_LT(line.size(), 64 << 10);
    for (const char* harmful : {"\xe2\x80\xae", "\xe2\x80\xa8", "\xef\xbb\xbf", "\xc2\x85"}) {
      EXPECT_THAT(line, Not(HasSubstr(harmful)));
      EXPECT_THAT(json_line, Not(HasSubstr(harmful)));
    }
    EXPECT_THAT(line, StartsWith("2025-11-21T07:16:42.123Z info    "));
  }
}

TEST(LogLine, HostileMessages) {
  for (const std::string& text : hostile()) {
    for (const LogFormat format : {LogFormat::kText, LogFormat::kJson}) {
      const std::string line = format_log_line(LogLevel::kWarning, text, text, {}, format, false);
      EXPECT_TRUE(is_printable(line));
      EXPECT_LT(line.size(), 64 << 10);
      if (format == LogFormat::kJson) {
        EXPECT_EQ(nlohmann::json::parse(line).size(), 5);
      }
    }
  }
}

TEST(LogLine, Formats) {
  const auto time = generation().arrived;
  EXPECT_EQ(format_log_line(LogLevel::kError, "it's \"so\"", "r1", time, LogFormat::kText, false),
            "2025-11-21T07:16:42.123Z error   it's \"so\" id=r1");
  EXPECT_EQ(
      format_log_line(LogLevel::kWarning, "so", "", time, LogFormat::kJson, false),
      R"({"time":"2025-11-21T07:16:42.123Z","level":"warning","event":"log","message":"so"})");
}

TEST(LogText, Readable) {
  const auto readable = [](std::string_view text) {
    std::string out;
    append_readable(out, text);
    return out;
  };
  EXPECT_EQ(readable("/v1/a-b_c.d:e"), "/v1/a-b_c.d:e");
  EXPECT_EQ(readable(""), "\"\"");
  EXPECT_EQ(readable("a b"), "\"a b\"");
  EXPECT_EQ(readable("a=b"), "\"a=b\"");
  EXPECT_EQ(readable("ä→😀"), "\"ä→😀\"");
  EXPECT_EQ(readable("a\n\t\"\\\x1b"), R"("a\n\t\"\\\u{1b}")");
  EXPECT_EQ(readable("\xff\xe2\x82"), R"("\xff\xe2\x82")");
  EXPECT_EQ(readable("\xe2\x80\xae"), R"("\u{202e}")");
}

TEST(LogText, JsonStrings) {
  const auto json = [](std::string_view text) {
    std::string out;
    append_json_string(out, text);
    return out;
  };
  EXPECT_EQ(json("ä😀 a/b"), "\"ä😀 a/b\"");
  EXPECT_EQ(json("\"\\\n"), R"("\"\\\u000a")");
  EXPECT_EQ(json("\xc0\x80"), R"("\ufffd\ufffd")");
  EXPECT_EQ(json("\xf3\xa0\x81\x81"), R"("\udb40\udc41")");  // an invisible tag, as surrogates
}

TEST(LogText, AnyBytesBecomePrintableUtf8) {
  std::mt19937 random(1);
  // Bytes that begin, continue and break characters, more often than others.
  const std::string_view bytes = "\x7f\x80\x85\xa8\xae\xbf\xc2\xe2\xed\xef\xf0\xf4\xff\n\x1b\"\\aZ";
  for (int i = 0; i < 20'000; ++i) {
    std::string text;
    for (size_t length = random() % 12; length > 0; --length) {
      text +=
          random() % 4 == 0 ? static_cast<char>(random() % 256) : bytes[random() % bytes.size()];
    }
    std::string json;
    append_json_string(json, text);
    std::string readable;
    append_readable(readable, text);
    std::string sentence;
    append_sentence(sentence, text);
    for (const std::string& line : {json, readable, sentence}) {
      ASSERT_TRUE(is_printable(line)) << json;
      // nlohmann's parser accepts only valid UTF-8; a quote ends its string.
      ASSERT_TRUE(nlohmann::json::accept(line == json ? json : nlohmann::json(line).dump()))
          << json;
    }
    ASSERT_LE(cut_text(text, 5).size(), 5 + std::string("…").size());
  }
}

TEST(LogText, CutsBetweenCharacters) {
  EXPECT_EQ(cut_text("abc", 3), "abc");
  EXPECT_EQ(cut_text("abcd", 3), "abc…");
  EXPECT_EQ(cut_text("aä", 2), "a…");
  EXPECT_EQ(cut_text("😀😀", 7), "😀…");
  EXPECT_EQ(cut_text("\x80\x80\x80\x80\x80\x80", 5), "\x80\x80…");
}

TEST(LogText, Time) {
  using std::chrono::milliseconds;
  EXPECT_EQ(format_time(std::chrono::system_clock::time_point(milliseconds(0))),
            "1970-01-01T00:00:00.000Z");
  EXPECT_EQ(format_time(std::chrono::system_clock::time_point(milliseconds(-1))),
            "1969-12-31T23:59:59.999Z");
}

TEST(LogFormatName, Parses) {
  EXPECT_EQ(parse_log_format("text"), LogFormat::kText);
  EXPECT_EQ(parse_log_format("json"), LogFormat::kJson);
  EXPECT_EQ(parse_log_format("JSON"), std::nullopt);
}

AccessLogConfig to(const Pipe& pipe, LogFormat format = LogFormat::kText) {
  AccessLogConfig config;
  config.fd = pipe.in;
  config.format = format;
  return config;
}

TEST(AccessLog, WritesWholeLinesInOrder) {
  Pipe pipe;
  {
    AccessLog log(to(pipe, LogFormat::kJson));
    log.info("first");
    log.request(generation());
    log.log(LogLevel::kError, "last", "r1");
    EXPECT_TRUE(log.flush(kLong));
  }
  pipe.close_in();
  const auto lines = lines_of(pipe.read_all());
  ASSERT_EQ(lines.size(), 3);
  EXPECT_EQ(nlohmann::json::parse(lines[0])["message"], "first");
  EXPECT_EQ(nlohmann::json::parse(lines[1])["request_id"], "cmpl-1");
  EXPECT_EQ(nlohmann::json::parse(lines[2])["level"], "error");
}

TEST(AccessLog, TheDestructorWritesWhatIsQueued) {
  Pipe pipe;
  { AccessLog(to(pipe)).warning("bye"); }
  pipe.close_in();
  EXPECT_THAT(pipe.read_all(), EndsWith(" warning bye\n"));
}

TEST(AccessLog, NoColorsInAPipe) {
  Pipe pipe;
  { AccessLog(to(pipe)).error("x"); }
  pipe.close_in();
  EXPECT_THAT(pipe.read_all(), Not(HasSubstr("\x1b")));
}

TEST(AccessLog, ManyThreadsNeverMixTheirLines) {
  Pipe pipe;
  std::string text;
  std::thread reader([&] { text = pipe.read_all(); });
  {
    AccessLog log(to(pipe));
    std::vector<std::thread> writers;
    for (int t = 0; t < 4; ++t) {
      writers.emplace_back([&log, t] {
        for (int i = 0; i < 500; ++i) log.info(std::string(200, static_cast<char>('a' + t)));
      });
    }
    for (std::thread& writer : writers) writer.join();
    EXPECT_TRUE(log.flush(kLong));
    EXPECT_EQ(log.dropped_lines(), 0);
  }
  pipe.close_in();
  reader.join();
  const auto lines = lines_of(text);
  EXPECT_EQ(lines.size(), 2000);
  for (const std::string& line : lines) {
    EXPECT_EQ(line.substr(line.size() - 200), std::string(200, line.back()));
  }
}

TEST(AccessLog, DropsAndCountsInsteadOfWaiting) {
  Pipe pipe;
  std::string text;
  int64_t dropped = 0;
  {
    AccessLogConfig config = to(pipe);
    config.max_queued_bytes = 4 << 10;
    AccessLog log(config);
    // More than the pipe and the queue hold, and nobody reads: this returns all the same.
    const std::string message(1000, 'x');
    for (int i = 0; i < 1000; ++i) log.info(message);
    dropped = log.dropped_lines();
    EXPECT_GT(dropped, 800);
    std::thread reader([&] { text = pipe.read_all(); });
    EXPECT_TRUE(log.flush(kLong));
    log.info("afterwards");
    EXPECT_TRUE(log.flush(kLong));
    EXPECT_EQ(log.dropped_lines(), dropped);
    pipe.close_in();
    reader.join();
  }
  // It may have said so more than once, each time of those since.
  int64_t lost = 0;
  int64_t warnings = 0;
  const auto lines = lines_of(text);
  for (const std::string& line : lines) {
    if (!line.ends_with("was written")) continue;
    lost += std::stoll(line.substr(line.find(" warning ") + 9));
    ++warnings;
  }
  EXPECT_EQ(lost, dropped);
  EXPECT_EQ(lines.size(), 1000 - dropped + warnings + 1);
  EXPECT_THAT(text, EndsWith(" afterwards\n"));
}

TEST(AccessLog, EndsThoughNobodyReads) {
  Pipe pipe;
  AccessLog log(to(pipe));
  for (int i = 0; i < 1000; ++i) log.info(std::string(1000, 'x'));
}  // the destructor gives up

TEST(AccessLog, SurvivesAReaderThatIsGone) {
  Pipe pipe;
  pipe.close_out();
  AccessLog log(to(pipe));
  log.info("nobody");
  EXPECT_TRUE(log.flush(kLong));
  EXPECT_EQ(log.dropped_lines(), 1);
}

TEST(AccessLog, SurvivesAClosedDescriptor) {
  AccessLogConfig config;
  config.fd = 1 << 20;
  AccessLog log(config);
  log.info("nowhere");
}  // and ends

}  // namespace
}  // namespace quire::server
