#include "layers/norm.h"

#include "ops/norm.h"

namespace quire {

RmsNorm::RmsNorm(const Placement& place, int64_t size, double eps)
    : weight_(place, "weight", size, DummyInit::kOnes, {{{size}, {0, size}, {0, 1}, 0}}),
      eps_(static_cast<float>(eps)) {}

void RmsNorm::add_parameters(const std::string& name, ParameterMap& parameters) {
  parameters.add(name, weight_);
}

void RmsNorm::forward(ForwardContext& context, const Tensor& in, const Tensor& out) const {
  ops::rms_norm(context.stream, in, weight_.tensor(), eps_, out);
}

void RmsNorm::forward_add(ForwardContext& context, const Tensor& x, const Tensor& residual,
                          const Tensor& out) const {
  if (context.comm.size() > 1) {
    if (context.comm.all_reduce_add_norm(
            context.stream,
            {.x = x, .residual = residual, .weight = weight_.tensor(), .eps = eps_, .out = out})) {
      return;
    }
    context.comm.all_reduce_sum(context.stream, x);
  }
  ops::add_rms_norm(context.stream, x, residual, weight_.tensor(), eps_, out);
}

}  // namespace quire
