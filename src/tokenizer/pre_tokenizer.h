#pragma once
// Cuts text into words, within which BPE merges: the pre_tokenizer of tokenizer.json.
//
// Each step cuts one piece and hands the parts to the next step at once, so nothing is collected
// and a text of any length needs no memory here. Immutable; any thread. Errors: quire::Error,
// naming the field that is not supported.
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "tokenizer/char_classes.h"
#include "tokenizer/json_field.h"

namespace quire::tokenizer_internal {

struct Piece {
  std::string_view text;
  const char* readable_end;  // bytes from text.data() up to here may be read
  bool at_start;             // the first piece of the whole text
};

class PieceSink {
 public:
  virtual ~PieceSink() = default;
  virtual void take(const Piece& piece) = 0;
};

// One step. Never hands on an empty piece.
class PreTokenizerStep {
 public:
  virtual ~PreTokenizerStep() = default;
  virtual void run(const Piece& piece, PieceSink& next) const = 0;
};

class PreTokenizer {
 public:
  // `field` is the pre_tokenizer, nullopt when there is none. `classes` must outlive the result.
  // With `allow_bytes`, a pipeline that ends in ByteLevel hands on bytes instead of spelling them
  // in the byte alphabet; then emits_bytes() is true.
  PreTokenizer(const std::optional<JsonField>& field, const CharClasses& classes, bool allow_bytes);

  bool emits_bytes() const { return emits_bytes_; }

  // Hands the words of a piece that is not empty to `sink`.
  void run(const Piece& piece, PieceSink& sink) const;

 private:
  void add_steps(const JsonField& field, const CharClasses& classes, bool is_last);
  void run_from(std::size_t step, const Piece& piece, PieceSink& sink) const;

  std::vector<std::unique_ptr<PreTokenizerStep>> steps_;
  bool allow_bytes_;
  bool emits_bytes_ = false;
};

}  // namespace quire::tokenizer_internal
