#pragma once

#include "kernels/norm.h"

namespace fsdptrain::kernels::cpu {

template <Isa isa>
void layer_norm(const Launch& launch, const LayerNormOut& out, const LayerNormIn& in,
                const NormShape& shape, double eps);
template <Isa isa>
void layer_norm_backward(const Launch& launch, const View& dx, const View& dy, const View& weight,
                         const LayerNormSaved& saved, const NormShape& shape);
template <Isa isa>
void layer_norm_backward_weight(const Launch& launch, const View& dweight, const View& dy,
                                const LayerNormSaved& saved, const NormShape& shape,
                                bool accumulate, void* partials);

template <Isa isa>
void rms_norm(const Launch& launch, const RmsNormOut& out, const RmsNormIn& in,
              const NormShape& shape, double eps);
template <Isa isa>
void rms_norm_backward(const Launch& launch, const View& dx, const View& dy, const View& weight,
                       const RmsNormSaved& saved, const NormShape& shape);
template <Isa isa>
void rms_norm_backward_weight(const Launch& launch, const View& dweight, const View& dy,
                              const RmsNormSaved& saved, const NormShape& shape, bool accumulate,
                              void* partials);

}  // namespace fsdptrain::kernels::cpu
