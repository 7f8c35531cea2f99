#include "cli/terminal/line_editor.h"

#include <histedit.h>
#include <langinfo.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <clocale>
#include <cstdlib>
#include <cwchar>
#include <filesystem>
#include <istream>
#include <ostream>

#include "cli/json_lines.h"
#include "cli/terminal/terminal_modes.h"
#include "quire/error.h"

namespace quire::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kHistorySize = 1000;
constexpr std::string_view kContinuation = "... ";

// Where the history is kept, its folder made; nothing where there is no home to keep it in.
std::optional<fs::path> history_file() {
  fs::path folder;
  if (const char* state = std::getenv("XDG_STATE_HOME"); state != nullptr && *state == '/') {
    folder = state;
  } else if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/') {
    folder = fs::path(home) / ".local" / "state";
  } else {
    return std::nullopt;
  }
  folder /= "quire";
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return std::nullopt;
  return folder / "history";
}

class PlainReader : public LineEditor {
 public:
  PlainReader(Terminal& terminal, const Interrupts& interrupts)
      : terminal_(terminal), interrupts_(interrupts) {}

  Result read(const std::string&) override {
    const InterruptHandler handler(interrupts_, exit_interrupted);
    std::optional<std::string> line = read_line(terminal_.in, "standard input");
    if (!line) return {.status = Status::kEnd, .line = {}};
    return {.status = Status::kLine, .line = std::move(*line)};
  }

  void remember(const std::string&) override {}

 private:
  Terminal& terminal_;
  const Interrupts& interrupts_;
};

class TerminalEditor : public LineEditor {
 public:
  TerminalEditor(Terminal& terminal, const Interrupts& interrupts);
  ~TerminalEditor() override;
  TerminalEditor(const TerminalEditor&) = delete;
  TerminalEditor& operator=(const TerminalEditor&) = delete;

  Result read(const std::string& prompt) override;
  void remember(const std::string& entry) override;
  void restore_terminal() const override { modes_.restore(); }

 private:
  static TerminalEditor& of(EditLine* edit_line);
  // Reads a character as libedit asks for it, but gives up when an interrupt comes first.
  static int read_char(EditLine* edit_line, wchar_t* out);
  int read_char(wchar_t* out);
  // Draws the line anew after the window changed, or others wrote into it.
  void redraw(TerminalModes::Changes changes);
  // Rows from the first of what is being edited down to the cursor, as the window is now.
  int rows_above_cursor() const;

  Terminal& terminal_;
  const Interrupts& interrupts_;
  TerminalModes modes_;
  EditLine* edit_line_;
  History* history_;
  std::optional<fs::path> history_file_;
  std::string prompt_;
  bool interrupted_ = false;
};

TerminalEditor::TerminalEditor(Terminal& terminal, const Interrupts& interrupts)
    : terminal_(terminal),
      interrupts_(interrupts),
      edit_line_(el_init("quire", stdin, stdout, stderr)),
      history_(history_init()),
      history_file_(history_file()) {
  if (edit_line_ == nullptr || history_ == nullptr)
    throw Error("the terminal cannot be set up for editing");
  HistEvent event{};
  history(history_, &event, H_SETSIZE, kHistorySize);
  history(history_, &event, H_SETUNIQUE, 1);
  if (history_file_) history(history_, &event, H_LOAD, history_file_->c_str());
  el_set(edit_line_, EL_CLIENTDATA, this);
  // Between two lines as within one: libedit would go back to the shell's mode.
  el_set(edit_line_, EL_SETTY, "-x", "-icanon", "-echo", "-iexten", nullptr);
  el_set(
      edit_line_, EL_PROMPT, +[](EditLine* self) { return of(self).prompt_.data(); });
  el_set(edit_line_, EL_EDITOR, "emacs");
  el_set(edit_line_, EL_HIST, history, history_);
  el_set(edit_line_, EL_GETCFN, static_cast<int (*)(EditLine*, wchar_t*)>(read_char));
  el_set(edit_line_, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  el_source(edit_line_, nullptr);
}

TerminalEditor::~TerminalEditor() {
  history_end(history_);
  el_end(edit_line_);
}

TerminalEditor& TerminalEditor::of(EditLine* edit_line) {
  void* self = nullptr;
  el_get(edit_line, EL_CLIENTDATA, &self);
  return *static_cast<TerminalEditor*>(self);
}

int TerminalEditor::read_char(EditLine* edit_line, wchar_t* out) {
  return of(edit_line).read_char(out);
}

int TerminalEditor::read_char(wchar_t* out) {
  std::mbstate_t state{};
  while (true) {
    std::array<pollfd, 3> fds = {pollfd{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0},
                                 pollfd{.fd = interrupts_.fd(), .events = POLLIN, .revents = 0},
                                 pollfd{.fd = modes_.fd(), .events = POLLIN, .revents = 0}};
    if (poll(fds.data(), fds.size(), -1) < 0 && errno != EINTR) return -1;
    if ((fds[1].revents & POLLIN) != 0 && interrupts_.take()) {
      interrupted_ = true;
      return 0;
    }
    if ((fds[2].revents & POLLIN) != 0) redraw(modes_.take());
    if (fds[0].revents == 0) continue;
    char byte = 0;
    const ssize_t count = ::read(STDIN_FILENO, &byte, 1);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return static_cast<int>(count);
    const size_t length = std::mbrtowc(out, &byte, 1, &state);
    if (length == static_cast<size_t>(-2)) continue;  // a character of several bytes goes on
    if (length != static_cast<size_t>(-1)) return 1;
    state = {};  // no character: as if it had not been typed
  }
}

int TerminalEditor::rows_above_cursor() const {
  winsize window{};
  if (ioctl(STDIN_FILENO, TIOCGWINSZ, &window) != 0 || window.ws_col == 0) return 0;
  const LineInfo* line = el_line(edit_line_);
  std::string before = prompt_;
  before.append(line->buffer, line->cursor);
  const char* rest = before.data();
  const char* end = rest + before.size();
  std::mbstate_t state{};
  int columns = 0;
  while (rest < end) {
    wchar_t character = 0;
    const size_t length = std::mbrtowc(&character, rest, static_cast<size_t>(end - rest), &state);
    if (length == 0 || length > before.size()) break;
    columns += std::max(0, wcwidth(character));
    rest += length;
  }
  return columns / window.ws_col;
}

void TerminalEditor::redraw(TerminalModes::Changes changes) {
  if (changes.continued) {
    // The program that had the terminal may have changed its modes, and libedit does not know.
    el_set(edit_line_, EL_PREP_TERM, 0);
    el_set(edit_line_, EL_PREP_TERM, 1);
  } else if (const int rows = rows_above_cursor(); rows > 0) {
    terminal_.out << "\033[" << rows << 'A';
  }
  terminal_.out << "\r\033[J";
  flush(terminal_);
  el_resize(edit_line_);
  el_set(edit_line_, EL_REFRESH);
}

LineEditor::Result TerminalEditor::read(const std::string& prompt) {
  prompt_ = prompt;
  interrupted_ = false;
  flush(terminal_);
  // libedit shows the prompt before it changes the terminal's modes; a signal that ends the program
  // in between would find them changed after they were given back.
  el_set(edit_line_, EL_PREP_TERM, 1);
  int length = 0;
  const char* line = el_gets(edit_line_, &length);
  if (interrupted_) {
    terminal_.out << "^C\n";
    return {.status = Status::kInterrupted, .line = {}};
  }
  if (line == nullptr || length <= 0) {
    terminal_.out << '\n';
    return {.status = Status::kEnd, .line = {}};
  }
  std::string text(line, static_cast<size_t>(length));
  if (text.ends_with('\n')) text.pop_back();
  return {.status = Status::kLine, .line = std::move(text)};
}

void TerminalEditor::remember(const std::string& entry) {
  if (entry.find_first_not_of(" \t\n") == std::string::npos) return;
  HistEvent event{};
  history(history_, &event, H_ENTER, entry.c_str());
  if (!history_file_) return;
  // A history that cannot be written is not worth an error; it holds what was asked, so it is
  // private.
  if (history(history_, &event, H_SAVE, history_file_->c_str()) >= 0) {
    chmod(history_file_->c_str(), S_IRUSR | S_IWUSR);
  }
}

// libedit reads characters as the locale says, and only UTF-8 has them all.
void use_utf8_locale() {
  if (std::setlocale(LC_CTYPE, "") == nullptr ||
      std::string_view(nl_langinfo(CODESET)) != "UTF-8") {
    std::setlocale(LC_CTYPE, "C.UTF-8");
  }
}

}  // namespace

std::unique_ptr<LineEditor> make_line_editor(Terminal& terminal, const Interrupts& interrupts) {
  if (!terminal.in_is_terminal || !terminal.out_is_terminal) {
    return std::make_unique<PlainReader>(terminal, interrupts);
  }
  use_utf8_locale();
  return std::make_unique<TerminalEditor>(terminal, interrupts);
}

LineEditor::Result read_entry(LineEditor& editor, const std::string& prompt) {
  using Status = LineEditor::Status;
  LineEditor::Result first = editor.read(prompt);
  if (first.status != Status::kLine) return first;
  std::string entry;
  if (first.line == R"(""")") {
    while (true) {
      LineEditor::Result next = editor.read(std::string(kContinuation));
      if (next.status == Status::kInterrupted) return next;
      if (next.status == Status::kEnd || next.line == R"(""")") break;
      entry += (entry.empty() ? "" : "\n") + next.line;
    }
  } else {
    entry = first.line;
    while (entry.ends_with('\\')) {
      entry.pop_back();
      LineEditor::Result next = editor.read(std::string(kContinuation));
      if (next.status == Status::kInterrupted) return next;
      if (next.status == Status::kEnd) break;
      entry += "\n" + next.line;
    }
  }
  editor.remember(entry);
  return {.status = Status::kLine, .line = std::move(entry)};
}

}  // namespace quire::cli
