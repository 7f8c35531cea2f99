#pragma once
// Text from outside made fit for a log: nothing in it can end a line, move a terminal's cursor,
// reverse the text around it or break JSON.
//
// Thread safety: pure functions.
#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

namespace quire::server {

// Appends `text` as a JSON string with its quotes. Control characters, line and paragraph
// separators, and characters that change the direction of text become \u escapes; invalid UTF-8
// becomes \ufffd.
void append_json_string(std::string& out, std::string_view text);

// Appends `text` for people: unchanged where it is one word of harmless characters, else in double
// quotes, with
// , \t, \", \\, \xNN for invalid UTF-8 and \u{NNNN} for the other characters that
// append_json_string escapes.
void append_readable(std::string& out, std::string_view text);

// The same for a sentence: without quotes, and blanks are harmless.
void append_sentence(std::string& out, std::string_view text);

// `text` up to `max_bytes`, cut at the end of a character, with "…" after it if something is
// missing.
std::string cut_text(std::string_view text, std::size_t max_bytes);

// "2026-11-21T07:16:42.123Z".
std::string format_time(std::chrono::system_clock::time_point time);

}  // namespace quire::server
