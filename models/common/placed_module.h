#pragma once

#include "runtime/nn/module.h"

namespace fsdptrain::models {

// Where each token of some rows stands, int64 [B, T] each.
struct TokenPlaces {
  // In its document, from 0.
  Tensor positions_BT;
  // Tokens of one row with different ids do not see each other.
  Tensor document_ids_BT;
};

// A part of a decoder that must know where tokens stand: a block, or its attention. Places go
// through the hooks, so that a recomputation has them among its inputs.
class PlacedModule : public nn::Module {
 public:
  // From hidden states to hidden states, [B, T, C].
  Tensor operator()(const Tensor& x_BTC, const TokenPlaces& places);

 private:
  virtual Tensor forward_at(const Tensor& x_BTC, const TokenPlaces& places) = 0;
};

}  // namespace fsdptrain::models
