#pragma once
// How a model's weights know how to load themselves.
//
// A Parameter is one weight of one rank. It says which checkpoint tensors it is made of (several,
// where projections are fused), which rows and columns of each this rank takes, and stores rows
// that it is given. A ParameterMap holds a model's parameters under their names and finds the one
// that a checkpoint tensor belongs to, through the model's packed-modules table. Thread safety:
// ParameterMap's const use is free; Parameter::store may run at once on disjoint rows.
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/tensor.h"

namespace quire {

// Half open: [begin, end).
struct IndexRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const IndexRange&) const = default;
};

// One checkpoint tensor's share in a parameter. A vector [n] counts as n rows of one column.
struct ParameterPart {
  std::vector<int64_t> shape;  // of the whole tensor in the checkpoint: [rows, columns] or [rows]
  IndexRange rows;             // that this rank takes; may be empty (a shard that is all padding)
  IndexRange columns;
  int64_t first_row = 0;  // where rows.begin goes in the parameter
};

// What random weights look like where no checkpoint is read.
enum class DummyInit { kUniform, kOnes };

class Parameter {
 public:
  virtual ~Parameter() = default;

  virtual const std::vector<ParameterPart>& parts() const = 0;
  virtual DummyInit dummy_init() const { return DummyInit::kUniform; }
  // What it takes of the device's memory, in bytes.
  virtual size_t bytes() const = 0;
  // Rows [first_row, first_row + source.dim(0)) of the parameter from `source` [rows, columns],
  // float32, bfloat16 or float16, aligned for its type.
  virtual void store(int64_t first_row, const Tensor& source) = 0;
};

// Module names in a checkpoint that are parts of one fused module: {"k_proj", {"qkv_proj", 1}} says
// that x.k_proj.weight is part 1 of the parameter x.qkv_proj.weight. Where no name is a part of
// qkv_proj, the checkpoint has x.qkv_proj.weight as one tensor: its parts, one below the other.
struct PackedModule {
  std::string module;
  size_t part = 0;
};
using PackedModules = std::map<std::string, PackedModule, std::less<>>;

class ParameterMap {
 public:
  explicit ParameterMap(PackedModules packed = {}) : packed_(std::move(packed)) {}

  // `parameter` outlives the map; names are unique.
  void add(std::string name, Parameter& parameter);
  // Checkpoint tensors that are no parameter of this rank and are passed over, by exact name or by
  // the rule.
  void ignore(std::function<bool(std::string_view name)> rule) {
    ignored_.push_back(std::move(rule));
  }
  bool ignored(std::string_view name) const;

  // A checkpoint tensor, or some rows of one, and where they go.
  struct Target {
    std::string name;            // in the checkpoint
    std::vector<int64_t> shape;  // of the whole tensor
    int64_t first_row = 0;       // of the tensor, where the part begins
    Parameter* parameter = nullptr;
    size_t part = 0;
  };
  // Where a checkpoint tensor goes; empty where the model has no such parameter.
  std::vector<Target> find(std::string_view checkpoint_name) const;
  // Of every checkpoint tensor that the model needs, in order of name.
  std::vector<Target> targets() const;
  // Of all parameters.
  size_t bytes() const;

 private:
  bool is_packed(std::string_view module) const;

  PackedModules packed_;
  std::map<std::string, Parameter*, std::less<>> parameters_;
  std::vector<std::function<bool(std::string_view)>> ignored_;
};

}  // namespace quire
