#pragma once
// Rewrites text before it is cut: the normalizer of tokenizer.json. Immutable; any thread.
// Errors: quire::Error, naming the field that is not supported.
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/char_classes.h"
#include "tokenizer/json_field.h"

namespace quire::tokenizer_internal {

class NormalizerStep {
 public:
  virtual ~NormalizerStep() = default;
  // Puts the result into `out`, which is empty, and returns true; or returns false when the text
  // stays as it is. May stop once `out` is longer than `max_bytes`.
  virtual bool run(std::string_view text, std::size_t max_bytes, std::string& out) const = 0;
};

class Normalizer {
 public:
  // `field` is the normalizer, nullopt when there is none. `classes` must outlive the result.
  Normalizer(const std::optional<JsonField>& field, const CharClasses& classes);

  // How much longer a step may make a text: far more than normalizers in use do (3 times for
  // spaces, 11 for the worst character of NFKC).
  static constexpr std::size_t kMaxGrowth = 16;
  static constexpr std::size_t kMaxGrowthBytes = 64 << 10;  // besides, for short texts

  // The normalised text: `text` itself where nothing changes, else a view of `storage`. Throws
  // Error where it would become longer than kMaxGrowth times `text` and kMaxGrowthBytes.
  std::string_view run(std::string_view text, std::string& storage) const;

 private:
  void add_steps(const JsonField& field, const CharClasses& classes);

  std::vector<std::unique_ptr<NormalizerStep>> steps_;
};

}  // namespace quire::tokenizer_internal
