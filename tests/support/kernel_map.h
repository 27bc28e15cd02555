#pragma once

#include <tuple>
#include <vector>

#include "kernels/elementwise.h"
#include "runtime/base/rank_context.h"

namespace fsdptrain::testing {

// A view of all elements, in one dimension.
template <class T>
View view_of(const std::vector<T>& values) {
  View view;
  // Views carry no const; inputs are only read.
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast): see above
  view.data = const_cast<T*>(values.data());
  view.dtype = kDTypeOf<T>;
  view.dims = 1;
  view.sizes[0] = static_cast<std::int64_t>(values.size());
  view.strides[0] = 1;
  return view;
}

// The same storage under other sizes and strides.
inline View with_layout(View view, const Shape& sizes, const Strides& strides) {
  view.dims = sizes.dims();
  for (int dim = 0; dim < view.dims; ++dim) {
    view.sizes[dim] = sizes[dim];
    view.strides[dim] = strides[dim];
  }
  return view;
}

// kernels::map on the CPU in one ISA variant, on the threads of the bound context.
template <class F, class... In>
void map_on(Isa isa, F f, const View& out, const In&... in) {
  Launch launch = current_context().launch(Device::cpu());
  launch.isa = isa;
  dispatch_isa(isa, [&]<Isa variant>() { kernels::cpu::map<variant>(launch, f, out, in...); });
}

template <class Out, class F, class... In>
std::vector<Out> mapped(Isa isa, F f, const std::vector<In>&... in) {
  std::vector<Out> out(std::get<0>(std::tie(in...)).size());
  map_on(isa, f, view_of(out), view_of(in)...);
  return out;
}

}  // namespace fsdptrain::testing
