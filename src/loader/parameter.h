#pragma once
// How a model's weights know how to load themselves.
//
// A Parameter is one weight of one rank. It lists the tensors that it is made of: one for a dense
// weight, several for a quantised one (numbers, scales, ...). For each tensor it lists the parts:
// several, where projections are fused. For each part it says which rows and columns this rank
// takes, and it stores the values that it is given. A ParameterMap holds a model's parameters under
// their names and finds, through the model's packed-modules table, the one that a checkpoint tensor
// belongs to.
//
// Thread safety: ParameterMap's const use is free; Parameter::store may run at once on rows and
// columns that don't overlap.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "core/dtype.h"
#include "core/tensor.h"
#include "loader/gguf_types.h"

namespace quire {

// Half open: [begin, end).
struct IndexRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const IndexRange&) const = default;
};

// What integers that are no weights hold. Nothing is asked of other tensors.
struct IntegerRule {
  // Not 0: each is one of so many groups.
  int64_t num_groups = 0;
  // Or all are -1, compressed-tensors' sign of inputs that are in the order of their groups.
  bool may_be_unset = false;
  // Not 0: in the order of their groups, each group of inputs begins at a multiple of it.
  int64_t group_multiple = 0;
  // Not empty: they are these.
  std::vector<int64_t> shape = {};
};

// One checkpoint tensor's share in a parameter. A vector [n] counts as n rows of one column.
struct ParameterPart {
  std::vector<int64_t> shape;  // of the whole tensor in the checkpoint: [rows, columns] or [rows]
  IndexRange rows;             // that this rank takes; may be empty (a shard that is all padding)
  IndexRange columns;
  // Where rows.begin and columns.begin go in the parameter's tensor.
  int64_t first_row = 0;
  int64_t first_column = 0;
  // Not null: the checkpoint has blocks of this type, and they are stored as they are.
  const GgufType* block_type = nullptr;
  IntegerRule integers = {};
};

// How a checkpoint that has a fused layer as one tensor holds the layer's parts: one below the
// other, side by side, or all parts share the whole tensor.
enum class FusedAlong { kRows, kColumns, kCommon };

// The random values of a tensor where no checkpoint is read.
enum class DummyInit {
  // Float32: between -kDummyBound and kDummyBound. Float8: uniform over its range. Integers: bits.
  kUniform,
  kOnes,
  kConstant,  // dummy_value
  kWord,      // of int32: dummy_word
  kAbsent,    // as in a checkpoint that lacks the tensor
};

// Uniform numbers up to this have standard deviation 0.02.
inline constexpr float kDummyBound = 0.02f * 1.7320508f;

// The types that dense weights, biases, norms and scales may have in a checkpoint.
inline std::vector<DType> dense_dtypes() {
  return {DType::kFloat32, DType::kFloat16, DType::kBFloat16};
}

// One of the tensors that a parameter is made of.
struct ParameterTensor {
  std::string leaf;  // how its name ends: "weight", "bias", "weight_scale", "g_idx"
  // The dtypes that it may have in a checkpoint. Dummy weights have the first: float32, float8 or
  // an integer.
  std::vector<DType> dtypes;
  std::vector<ParameterPart> parts;
  FusedAlong fused_along = FusedAlong::kRows;
  DummyInit dummy_init = DummyInit::kUniform;
  float dummy_value = 0.0f;
  uint32_t dummy_word = 0;
  // Its values are scales: finite, and not zero unless that is allowed.
  bool is_scales = false;
  bool may_be_zero = false;
  bool is_positive = false;  // and not below zero
  // A checkpoint may have one number in the place of the vector [n], and may have extents of 1
  // behind the n. Its part is the whole tensor; one number comes as one row.
  bool may_be_one = false;
  // A checkpoint may lack it.
  bool optional = false;
  // How many of the model's parameters an element holds: 8 where that many are packed into a word,
  // 0 for scales and the like.
  int64_t parameters_each = 1;
  // Why it is quantised, or is not: ", as ...". It ends the message for a checkpoint that differs.
  std::string reason = {};
};

// A piece of one of a parameter's tensors.
struct ParameterSlice {
  size_t tensor = 0;      // place in Parameter::tensors()
  int64_t first_row = 0;  // where the source's first value goes in that tensor
  int64_t first_column = 0;
  // [rows, columns] in one of the tensor's dtypes, aligned for it. For a part with a block type
  // uint8 [rows, bytes]: each row's blocks that contain the part's columns; dummy weights are plain
  // numbers here, too.
  Tensor source;
  // The source is the checkpoint's own memory, which stays as it is until finish(): a parameter
  // that needs it until then need not copy it.
  bool is_kept = false;
};

class Parameter {
 public:
  virtual ~Parameter() = default;

  // The same ones as long as it lives.
  virtual const std::vector<ParameterTensor>& tensors() const = 0;
  // Bytes of the device's memory that it takes.
  virtual size_t bytes() const = 0;
  // Throws Error, without the tensor's name, where blocks of a GGUF file hold no numbers; otherwise
  // it does not throw.
  virtual void store(const ParameterSlice& slice) = 0;
  // Called on the loading thread once all of its tensors are stored, for formats that are packed
  // when all is there. Throws Error where the tensors don't fit together.
  virtual void finish(ThreadPool& pool) { static_cast<void>(pool); }
};

// Module names in a checkpoint that are parts of one fused module: {"k_proj", {"qkv_proj", 1}} says
// that x.k_proj.weight is part 1 of the tensor x.qkv_proj.weight. Where no name is a part of
// qkv_proj, the checkpoint has x.qkv_proj.weight as one tensor: its parts, fused along the tensor's
// axis.
struct PackedModule {
  std::string module;
  size_t part = 0;
};
using PackedModules = std::map<std::string, PackedModule, std::less<>>;

class ParameterMap {
 public:
  explicit ParameterMap(PackedModules packed = {}) : packed_(std::move(packed)) {}

  // Adds the parameter's tensors as "<module>.<leaf>". `parameter` outlives the map; names are
  // unique.
  void add(const std::string& module, Parameter& parameter);
  // Ignores checkpoint tensors that are not parameters of this rank, by exact name or by the rule.
  void ignore(std::function<bool(std::string_view name)> rule) {
    ignored_.push_back(std::move(rule));
  }
  bool ignored(std::string_view name) const;
  // Ignores tensors likewise, but only those that hold nothing but zeros.
  void ignore_zeros(std::function<bool(std::string_view name)> rule) {
    ignored_zeros_.push_back(std::move(rule));
  }
  bool ignored_if_zero(std::string_view name) const;

  // A checkpoint tensor, or a part of one, and where it goes.
  struct Target {
    std::string name;            // in the checkpoint
    std::vector<int64_t> shape;  // of the whole tensor
    int64_t first_row = 0;       // of the tensor, where the part begins
    int64_t first_column = 0;
    Parameter* parameter = nullptr;
    size_t tensor = 0;  // place in parameter->tensors()
    size_t part = 0;    // place in that tensor's parts

    const ParameterTensor& made_of() const { return parameter->tensors()[tensor]; }
    const ParameterPart& share() const { return made_of().parts[part]; }
  };
  // Where a checkpoint tensor goes; empty where the model has no such parameter.
  std::vector<Target> find(std::string_view checkpoint_name) const;
  // The targets of every checkpoint tensor that the model needs, in order of name.
  std::vector<Target> targets() const;
  // Of all parameters.
  size_t bytes() const;

 private:
  struct Entry {
    Parameter* parameter = nullptr;
    size_t tensor = 0;
    const std::vector<ParameterPart>& parts() const { return parameter->tensors()[tensor].parts; }
  };

  bool is_packed(std::string_view module) const;
  static Target part_target(std::string name, const Entry& entry, size_t part);
  static std::vector<Target> whole_targets(const std::string& name, const Entry& entry);

  PackedModules packed_;
  std::map<std::string, Entry, std::less<>> tensors_;  // by their whole names
  std::vector<std::function<bool(std::string_view)>> ignored_;
  std::vector<std::function<bool(std::string_view)>> ignored_zeros_;
};

}  // namespace quire
