#pragma once
// Reads lines: on a terminal with editing and a history that outlives the program, otherwise plain
// lines.
//
// Thread safety: one thread at a time.
#include <memory>
#include <optional>
#include <string>

#include "cli/terminal/interrupts.h"
#include "cli/terminal/terminal.h"

namespace quire::cli {

class LineEditor {
 public:
  virtual ~LineEditor() = default;

  enum class Status { kLine, kInterrupted, kEnd };
  struct Result {
    Status status = Status::kEnd;
    std::string line;  // without its line feed
  };
  // Throws Error for a line that is longer than anything typed or piped may be.
  virtual Result read(const std::string& prompt) = 0;
  // Puts an entry into the history.
  virtual void remember(const std::string& entry) = 0;
  // Restores the terminal, before a process ends without destroying the editor. From any thread.
  virtual void restore_terminal() const {}
};

// For a terminal: libedit, with its history in $XDG_STATE_HOME/quire/history. From then on typed
// text waits unechoed for read(); make it before the engine, as TerminalModes says. Otherwise:
// `terminal.in` line by line.
std::unique_ptr<LineEditor> make_line_editor(Terminal& terminal, const Interrupts& interrupts);

// Joins the lines of one entry: lines that end in a backslash, and those between two lines of """.
LineEditor::Result read_entry(LineEditor& editor, const std::string& prompt);

}  // namespace quire::cli
