#pragma once

#include <cstdint>
#include <vector>

#include "models/common/placed_module.h"
#include "runtime/ops/linear_cross_entropy.h"

namespace fsdptrain::models {

// Rows of tokens and where each token stands, int64 [B, T] each.
struct TokenRows {
  Tensor tokens_BT;
  // Of each token in its document, from 0.
  Tensor positions_BT;
  // Tokens of one row with different ids do not see each other.
  Tensor document_ids_BT;

  TokenPlaces places() const { return {positions_BT, document_ids_BT}; }
};

// Rows of one document each, from its beginning on.
TokenRows one_document(const Tensor& tokens_BT);

// A language model that predicts each token from those before it: what a trainer, an evaluation
// and a sampler know of any model family.
//
// Shapes: B samples, T positions, V vocabulary.
class Decoder : public nn::Module {
 public:
  // Of the next token at every position, [B, T, V]; T at most max_seq_len(), else ShapeError.
  Tensor logits(const TokenRows& rows);

  // options.loss_scale * sum over unmasked targets of the cross entropy; targets_BT holds the next
  // tokens, options.ignore_index where none is predicted. One element, float32 (float64 for float64
  // models).
  Tensor loss(const TokenRows& rows, const Tensor& targets_BT,
              const ops::LinearCrossEntropyOptions& options);

  // What is repeated, in order: the units of recomputation.
  virtual std::vector<nn::Module*> blocks() = 0;
  void set_block_recompute(nn::Recompute policy);
  // What looks tokens up, where the head does not share its weight; null where it does.
  virtual nn::Module* untied_embedding() { return nullptr; }

  // Where its parameters are placed.
  Device device() const { return head_weight().device(); }
  virtual std::int64_t vocab_size() const = 0;
  virtual std::int64_t max_seq_len() const = 0;

 private:
  // What the hooks see: the rows, of one shape, and what a computation takes besides.
  Tensors with_rows(const TokenRows& rows) const;

  // The input of the head, [B, T, features], and the head's weight, [V, features].
  virtual Tensor hidden(const TokenRows& rows) = 0;
  virtual const Tensor& head_weight() const = 0;
};

}  // namespace fsdptrain::models
