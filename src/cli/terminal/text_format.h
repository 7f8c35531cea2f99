#pragma once
// Figures and tables as people read them.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quire::cli {

// 1,234,567.
std::string with_commas(int64_t value);

// "512 B", "1.50 KiB", "12.3 GiB".
std::string format_bytes(int64_t bytes);

// Rows of cells in aligned columns, two spaces apart, the first column indented by two.
class Table {
 public:
  enum class Align { kLeft, kRight };

  explicit Table(std::vector<Align> columns) : columns_(std::move(columns)) {}

  void add(std::vector<std::string> cells);
  std::string str() const;

 private:
  std::vector<Align> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace quire::cli
