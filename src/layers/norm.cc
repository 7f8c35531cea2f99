#include "layers/norm.h"

#include "base/check.h"
#include "ops/norm.h"

namespace quire {

RmsNorm::RmsNorm(const Placement& place, int64_t size, double eps)
    : weight_(place, "weight", size, DummyInit::kOnes, {{{size}, {0, size}, {0, 1}, 0}}),
      eps_(static_cast<float>(eps)) {}

void RmsNorm::add_parameters(const std::string& name, ParameterMap& parameters) {
  parameters.add(name, weight_);
}

void RmsNorm::add_lora_sites(const std::string& name, LoraSites& sites, bool of_heads) const {
  sites.add_norm(name + ".weight",
                 {.layer = this, .size = weight_.tensor().dim(0), .of_heads = of_heads});
}

void RmsNorm::forward(ForwardContext& context, const Tensor& in, const Tensor& out) const {
  LinearInput plain(out);
  forward(context, in, plain);
}

void RmsNorm::forward_add(ForwardContext& context, const Tensor& x, const Tensor& residual,
                          const Tensor& out) const {
  LinearInput plain(out);
  forward_add(context, x, residual, plain);
}

void RmsNorm::forward(ForwardContext& context, const Tensor& in, LinearInput& out) const {
  const bool is_adapted = context.lora != nullptr || context.gpu_lora != nullptr;
  check(!is_adapted || in.raw() != out.x.raw(), "adapters need the norm's input");
  ops::rms_norm(context.stream, in, weight_.tensor(), eps_, out.x, out.rounded);
  replace_adapted(context, in, out.x);
}

void RmsNorm::forward_add(ForwardContext& context, const Tensor& x, const Tensor& residual,
                          LinearInput& out) const {
  if (context.comm.size() > 1) {
    if (context.lora == nullptr &&
        context.comm.all_reduce_add_norm(context.stream, {.x = x,
                                                          .residual = residual,
                                                          .weight = weight_.tensor(),
                                                          .eps = eps_,
                                                          .out = out.x})) {
      out.rounded = {};
      return replace_adapted(context, residual, out.x);
    }
    context.comm.all_reduce_sum(context.stream, x);
  }
  ops::add_rms_norm(context.stream, x, residual, weight_.tensor(), eps_, out.x, out.rounded);
  replace_adapted(context, residual, out.x);
}

void RmsNorm::replace_adapted(ForwardContext& context, const Tensor& in, const Tensor& out) const {
  if (context.lora != nullptr) context.lora->replace_norm(context.stream, this, eps_, in, out);
  if (context.gpu_lora != nullptr) {
    context.gpu_lora->replace_norm(context.stream, this, eps_, in, out);
  }
}

}  // namespace quire
