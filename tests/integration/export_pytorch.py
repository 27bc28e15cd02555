"""GPT-2 and Llama in PyTorch, in float64, from the files that `fsdptrain checkpoint export` writes.

usage: PYTHON export_pytorch.py gpt2|llama WEIGHTS HEADS <WINDOWS

The windows, JSON: lists of tokens. The answer, JSON: of each window the mean loss, and the
logits of all places but the last, one after the other.
"""

import json
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

EPS = 1e-5
ROPE_THETA = 500000.0


def attention(q, k, v, num_heads):
    """Causal, of [T, heads * head_dim]; heads of k and v may be fewer."""
    head_dim = q.shape[1] // num_heads
    q, k, v = (x.view(x.shape[0], -1, head_dim).transpose(0, 1) for x in (q, k, v))
    k, v = (x.repeat_interleave(num_heads // x.shape[0], 0) for x in (k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(0, 1).flatten(1)


def gpt2(w, tokens, num_heads):
    def linear(x, name):
        return F.linear(x, w[name + ".weight"], w[name + ".bias"])

    def norm(x, name):
        return F.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"], EPS)

    x = w["wte.weight"][tokens] + w["wpe.weight"][:len(tokens)]
    layer = 0
    while f"h.{layer}.ln_1.weight" in w:
        at = f"h.{layer}."
        q, k, v = linear(norm(x, at + "ln_1"), at + "attn.c_attn").chunk(3, -1)
        x = x + linear(attention(q, k, v, num_heads), at + "attn.c_proj")
        inner = F.gelu(linear(norm(x, at + "ln_2"), at + "mlp.c_fc"), approximate="tanh")
        x = x + linear(inner, at + "mlp.c_proj")
        layer += 1
    return norm(x, "ln_f") @ w["wte.weight"].T


def rotated(x, head_dim):
    """Pairs are a feature of the first half of a head and that of the second."""
    frequencies = ROPE_THETA ** (-torch.arange(0, head_dim, 2, dtype=x.dtype) / head_dim)
    angles = (torch.arange(len(x), dtype=x.dtype)[:, None] * frequencies)[:, None]
    first, second = x.view(len(x), -1, head_dim).chunk(2, -1)
    return torch.cat([first * angles.cos() - second * angles.sin(),
                      second * angles.cos() + first * angles.sin()], -1).flatten(1)


def llama(w, tokens, num_heads):
    def norm(x, name):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * w[name + ".weight"]

    x = w["model.embed_tokens.weight"][tokens]
    layer = 0
    while f"model.layers.{layer}.input_layernorm.weight" in w:
        at = f"model.layers.{layer}."
        q, k, v = (norm(x, at + "input_layernorm") @ w[f"{at}self_attn.{name}_proj.weight"].T for name in "qkv")
        head_dim = q.shape[1] // num_heads
        mixed = attention(rotated(q, head_dim), rotated(k, head_dim), v, num_heads)
        x = x + mixed @ w[at + "self_attn.o_proj.weight"].T
        gate, up = (norm(x, at + "post_attention_layernorm") @ w[f"{at}mlp.{name}_proj.weight"].T
                    for name in ("gate", "up"))
        x = x + (F.silu(gate) * up) @ w[at + "mlp.down_proj.weight"].T
        layer += 1
    return norm(x, "model.norm") @ w["lm_head.weight"].T


def main(model, weights, num_heads):
    w = {name: tensor.double() for name, tensor in load_file(weights).items()}
    answers = []
    for window in json.load(sys.stdin):
        logits = {"gpt2": gpt2, "llama": llama}[model](w, torch.tensor(window[:-1]), int(num_heads))
        answers.append({"loss": F.cross_entropy(logits, torch.tensor(window[1:])).item(),
                        "logits": logits.flatten().tolist()})
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
