#include "cli/terminal/text_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/check.h"
#include "cli/terminal/terminal.h"

namespace quire::cli {

std::string with_commas(int64_t value) {
  std::string digits = std::to_string(value);
  const size_t first = value < 0 ? 1 : 0;
  for (size_t i = digits.size(); i > first + 3; i -= 3) digits.insert(i - 3, ",");
  return digits;
}

std::string format_bytes(int64_t bytes) {
  constexpr std::array<std::string_view, 4> kUnits = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  const int decimals = value < 10 ? 2 : value < 100 ? 1 : 0;
  return fmt::format("{:.{}f} {}", value, decimals, kUnits[unit]);
}

void Table::add(std::vector<std::string> cells) {
  check(cells.size() == columns_.size(), "a row has a cell for each column");
  // Names come from files, and those may hold anything.
  for (std::string& cell : cells) cell = printable_line(cell);
  rows_.push_back(std::move(cells));
}

std::string Table::str() const {
  std::vector<size_t> widths(columns_.size());
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      line += columns_[i] == Align::kRight ? fmt::format("  {:>{}}", row[i], widths[i])
                                           : fmt::format("  {:<{}}", row[i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace quire::cli
