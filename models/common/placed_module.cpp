#include "models/common/placed_module.h"

namespace fsdptrain::models {

Tensor PlacedModule::operator()(const Tensor& x_BTC, const TokenPlaces& places) {
  return through_hooks({x_BTC, places.positions_BT, places.document_ids_BT},
                       [this](const Tensors& inputs) {
                         return Tensors{forward_at(inputs[0], {inputs[1], inputs[2]})};
                       })
      .front();
}

}  // namespace fsdptrain::models
