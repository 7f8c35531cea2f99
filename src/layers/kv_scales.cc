#include "layers/kv_scales.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "base/ceil_div.h"
#include "base/check.h"
#include "layers/parameters.h"

namespace quire {
namespace {

constexpr std::string_view kKeyNames[] = {"k_scale", "attn.k_scale", "k_proj.k_scale",
                                          "qkv_proj.k_scale", "k_proj.output_scale"};
constexpr std::string_view kValueNames[] = {"v_scale", "attn.v_scale", "v_proj.v_scale",
                                            "qkv_proj.v_scale", "v_proj.output_scale"};
constexpr std::string_view kNameOfBoth = "kv_scale";

ParameterTensor tensor_of(std::string_view name, int64_t num_kv_heads) {
  return {.leaf = std::string(name),
          .dtypes = dense_dtypes(),
          .parts = {{{num_kv_heads}, {0, num_kv_heads}, {0, 1}, 0}},
          .dummy_init = DummyInit::kAbsent,
          .is_scales = true,
          .is_positive = true,
          .may_be_one = true,
          .optional = true,
          .parameters_each = 0};
}

}  // namespace

KvScales::KvScales(const Placement& place, int64_t num_kv_heads)
    : device_(place.device),
      heads_(kv_heads_at(num_kv_heads, place.at)),
      buffer_(static_cast<size_t>(values_at() + heads_.size()) * sizeof(float), place.device) {
  const auto add = [&](std::string_view name) {
    tensors_.push_back(tensor_of(name, num_kv_heads));
    return tensors_.size() - 1;
  };
  for (const std::string_view name : kKeyNames) key_names_.push_back(add(name));
  for (const std::string_view name : kValueNames) value_names_.push_back(add(name));
  key_names_.push_back(add(kNameOfBoth));
  value_names_.push_back(key_names_.back());
  loaded_.resize(tensors_.size());
}

int64_t KvScales::values_at() const {
  return round_up<int64_t>(heads_.size(), 4);  // kernels take arrays that are aligned to 16 bytes
}

void KvScales::store(const ParameterSlice& slice) {
  check(slice.first_row == 0 && slice.source.dim(1) == 1, "a scale is loaded as a whole");
  std::vector<float> numbers(static_cast<size_t>(slice.source.dim(0)));
  copy_values(slice.source, numbers.data());
  loaded_[slice.tensor] = std::move(numbers);
}

bool KvScales::upload(const std::vector<size_t>& names, float* out) {
  const auto found =
      std::ranges::find_if(names, [this](size_t name) { return !loaded_[name].empty(); });
  if (found == names.end()) return false;
  const std::vector<float>& numbers = loaded_[*found];
  const auto put = [&](float* to) {
    for (int64_t head = heads_.begin; head < heads_.end; ++head) {
      *to++ = numbers.size() == 1 ? numbers.front() : numbers[static_cast<size_t>(head)];
    }
  };
  if (device_.is_cpu()) {
    put(out);
  } else {
    device_.memory->upload(reinterpret_cast<std::byte*>(out),
                           static_cast<size_t>(heads_.size()) * sizeof(float),
                           [&](std::byte* from) { put(reinterpret_cast<float*>(from)); });
  }
  return true;
}

void KvScales::finish(ThreadPool& /*pool*/) {
  auto* const keys = reinterpret_cast<float*>(buffer_.data());
  has_key_scales_ = upload(key_names_, keys);
  has_value_scales_ = upload(value_names_, keys + values_at());
}

KvCacheView KvScales::applied_to(KvCacheView cache) const {
  const auto* const keys = reinterpret_cast<const float*>(buffer_.data());
  if (has_key_scales_) cache.key_scales = keys;
  if (has_value_scales_) cache.value_scales = keys + values_at();
  return cache;
}

}  // namespace quire
