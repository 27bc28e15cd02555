#!/usr/bin/env python3
"""Makes ops.safetensors: single operations and their gradients in float64, from PyTorch.

Backward tensors are gradients of sum(dy * y) for the given `dy`, unless README.md in this folder
says otherwise.

    python3 -m venv /tmp/golden
    /tmp/golden/bin/pip install torch==2.15.0 numpy safetensors
    /tmp/golden/bin/python tests/golden/make_ops.py            # writes the file
    /tmp/golden/bin/python tests/golden/make_ops.py --check    # compares with the committed one
"""

import argparse
import math
import pathlib

import numpy
import torch
import torch.nn.functional as F

import golden_file

SEED = 20240301
LAYER_NORM_EPS = 1e-5
IGNORE_INDEX = -100
RMS_NORM_EPS = 1e-6
ROTARY_THETA = 500000.0
# Hugging Face's "llama3": of the wavelengths of 32 features some are kept, one is interpolated and
# some are stretched.
LLAMA3 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position": 512,
}
WINDOW = 7
LABEL_SMOOTHING = 0.1
ADAMW = {"lr": 1e-2, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1, "step": 3}


class Source:
    """Random float64 tensors of unit scale, in a fixed order."""

    def __init__(self, seed):
        self.rng = numpy.random.Generator(numpy.random.PCG64(seed))

    def normal(self, *shape):
        return torch.from_numpy(self.rng.standard_normal(shape))

    def integers(self, high, *shape):
        return torch.from_numpy(self.rng.integers(0, high, shape))


def gradients(output, dy, *inputs):
    return torch.autograd.grad(output, inputs, dy)


def layer_norm(source):
    x = (3 * source.normal(7, 33) + 0.5).requires_grad_()
    weight = (1 + 0.3 * source.normal(33)).requires_grad_()
    bias = (0.3 * source.normal(33)).requires_grad_()
    dy = source.normal(7, 33)
    y = F.layer_norm(x, (33,), weight, bias, LAYER_NORM_EPS)
    dx, dweight, dbias = gradients(y, dy, x, weight, bias)
    return {
        "x": x,
        "weight": weight,
        "bias": bias,
        "y": y,
        "mean": x.mean(-1),
        "rstd": torch.rsqrt(x.var(-1, correction=0) + LAYER_NORM_EPS),
        "dy": dy,
        "dx": dx,
        "dweight": dweight,
        "dbias": dbias,
    }


def gelu(source, approximate):
    x = 2 * source.normal(5, 37)
    # Zero, where the curve bends, and where it is flat to the last bit.
    x[0, :9] = torch.tensor([0.0, -0.0, 1e-9, -1e-9, -0.75, 8.0, -8.0, 40.0, -40.0])
    x.requires_grad_()
    dy = source.normal(5, 37)
    y = F.gelu(x, approximate=approximate)
    (dx,) = gradients(y, dy, x)
    return {"x": x, "y": y, "dy": dy, "dx": dx}


def attention(source):
    q, k, v, dout = (source.normal(2, 5, 3, 8) for _ in range(4))
    for tensor in (q, k, v):
        tensor.requires_grad_()

    def heads_first(tensor_BTHD):
        return tensor_BTHD.transpose(1, 2)

    out = heads_first(
        F.scaled_dot_product_attention(
            heads_first(q), heads_first(k), heads_first(v), is_causal=True
        )
    )
    dq, dk, dv = gradients(out, dout, q, k, v)
    scores_BHTT = heads_first(q) @ heads_first(k).transpose(-1, -2) / math.sqrt(q.shape[-1])
    future = torch.ones(q.shape[1], q.shape[1], dtype=torch.bool).triu(1)
    lse_BHT = scores_BHTT.masked_fill(future, -math.inf).logsumexp(-1)
    return {
        "q": q,
        "k": k,
        "v": v,
        "out": out,
        "lse": lse_BHT,
        "dout": dout,
        "dq": dq,
        "dk": dk,
        "dv": dv,
    }


def embedding(source):
    weight = source.normal(11, 6).requires_grad_()
    indices = source.integers(11, 3, 5)
    # One row often, one row in two samples, and row 10 never.
    indices[indices == 10] = 0
    indices[0, :3] = 4
    indices[1, 0] = indices[2, 4] = 7
    dy = source.normal(3, 5, 6)
    y = F.embedding(indices, weight)
    (dweight,) = gradients(y, dy, weight)
    return {"weight": weight, "indices": indices, "y": y, "dy": dy, "dweight": dweight}


def cross_entropy(source):
    logits = (3 * source.normal(9, 23)).requires_grad_()
    targets = source.integers(23, 9)
    targets[2] = targets[8] = IGNORE_INDEX
    losses = F.cross_entropy(logits, targets, ignore_index=IGNORE_INDEX, reduction="none")
    loss = losses.sum()
    (dlogits,) = torch.autograd.grad(loss, logits)
    return {
        "logits": logits,
        "targets": targets,
        "losses": losses,
        "loss": loss.reshape(1),
        "dlogits": dlogits,
    }


def softmax(source):
    x = (3 * source.normal(6, 19)).requires_grad_()
    dy = source.normal(6, 19)
    y = x.softmax(-1)
    (dx,) = gradients(y, dy, x)
    return {"x": x, "y": y, "dy": dy, "dx": dx}


def silu(source):
    x = 4 * source.normal(5, 37)
    x[0, :8] = torch.tensor([0.0, -0.0, 1e-9, -1e-9, 40.0, -40.0, 700.0, -700.0])
    x.requires_grad_()
    dy = source.normal(5, 37)
    y = F.silu(x)
    (dx,) = gradients(y, dy, x)
    return {"x": x, "y": y, "dy": dy, "dx": dx}


def rms_norm(source):
    x = (3 * source.normal(7, 33) + 0.5).requires_grad_()
    weight = (1 + 0.3 * source.normal(33)).requires_grad_()
    dy = source.normal(7, 33)
    y = F.rms_norm(x, (33,), weight, RMS_NORM_EPS)
    dx, dweight = gradients(y, dy, x, weight)
    return {"x": x, "weight": weight, "y": y, "dy": dy, "dx": dx, "dweight": dweight}


def rotary_frequencies(head_size):
    return ROTARY_THETA ** (-torch.arange(0, head_size, 2, dtype=torch.float64) / head_size)


def llama3_frequencies(plain):
    """As the "llama3" rope type of Hugging Face's transformers defines them."""
    wavelength = 2 * math.pi / plain
    original = LLAMA3["original_max_position"]
    low, high = LLAMA3["low_freq_factor"], LLAMA3["high_freq_factor"]
    stretched = plain / LLAMA3["factor"]
    smooth = (original / wavelength - low) / (high - low)
    between = (1 - smooth) * stretched + smooth * plain
    scaled = torch.where(wavelength > original / low, stretched, between)
    return torch.where(wavelength < original / high, plain, scaled)


def rotary(source):
    x = source.normal(2, 6, 3, 32).requires_grad_()
    positions = torch.tensor([[0, 1, 2, 500, 8191, 131071], [7, 7, 3, 0, 1000000, 16777216]])
    dy = source.normal(2, 6, 3, 32)
    tensors = {"x": x, "positions": positions, "dy": dy}
    plain = rotary_frequencies(32)
    for kind, frequencies in (("default", plain), ("llama3", llama3_frequencies(plain))):
        angles_BT1D = torch.cat([positions[:, :, None, None] * frequencies] * 2, -1)
        low, high = x.chunk(2, -1)
        y = x * angles_BT1D.cos() + torch.cat([-high, low], -1) * angles_BT1D.sin()
        (dx,) = gradients(y, dy, x)
        tensors |= {f"{kind}_frequencies": frequencies, f"{kind}_y": y, f"{kind}_dx": dx}
    return tensors


def masked_attention(source):
    """Causal, with grouped queries, a window and documents; more than one tile of 64."""
    q, dout = (source.normal(1, 150, 4, 4) for _ in range(2))
    k, v = (source.normal(1, 150, 2, 4) for _ in range(2))
    for tensor in (q, k, v):
        tensor.requires_grad_()
    lengths = torch.tensor([3, 64, 1, 20, 62])
    document_ids = torch.repeat_interleave(torch.tensor([5, 9, 10, 40, 41]), lengths)
    query, key = torch.arange(150)[:, None], torch.arange(150)[None, :]
    visible = (key <= query) & (document_ids[:, None] == document_ids[None, :])
    tensors = {"q": q, "k": k, "v": v, "document_ids": document_ids[None], "dout": dout}
    for name, mask in (("documents", visible), ("window", visible & (query - key < WINDOW))):
        out = F.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), mask, enable_gqa=True
        ).transpose(1, 2)
        dq, dk, dv = gradients(out, dout, q, k, v)
        results = {"out": out, "dq": dq, "dk": dk, "dv": dv}
        tensors |= {f"{name}_{result}": value for result, value in results.items()}
    return tensors


def label_smoothing(source):
    logits = (3 * source.normal(9, 23)).requires_grad_()
    targets = source.integers(23, 9)
    targets[2] = targets[8] = IGNORE_INDEX
    loss = F.cross_entropy(
        logits, targets, ignore_index=IGNORE_INDEX, label_smoothing=LABEL_SMOOTHING
    )
    (dlogits,) = torch.autograd.grad(loss, logits)
    return {"logits": logits, "targets": targets, "loss": loss.reshape(1), "dlogits": dlogits}


def adamw(source):
    param = source.normal(5, 7)
    grad = 0.1 * source.normal(5, 7)
    exp_avg = 0.1 * source.normal(5, 7)
    exp_avg_sq = 0.01 * source.normal(5, 7).square()
    tensors = {
        "param": param.clone(),
        "grad": grad.clone(),
        "exp_avg": exp_avg.clone(),
        "exp_avg_sq": exp_avg_sq.clone(),
    }
    optimizer = torch.optim.AdamW(
        [param.requires_grad_()],
        lr=ADAMW["lr"],
        betas=(ADAMW["beta1"], ADAMW["beta2"]),
        eps=ADAMW["eps"],
        weight_decay=ADAMW["weight_decay"],
        foreach=False,
    )
    # The state after step - 1 updates: the bias corrections of the next one use `step`.
    optimizer.state[param] = {
        "step": torch.tensor(float(ADAMW["step"] - 1)),
        "exp_avg": exp_avg,
        "exp_avg_sq": exp_avg_sq,
    }
    param.grad = grad
    optimizer.step()
    tensors["new_param"] = param
    tensors["new_exp_avg"] = exp_avg
    tensors["new_exp_avg_sq"] = exp_avg_sq
    return tensors


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--out", type=pathlib.Path, default=golden_file.FOLDER, help="folder (default: this one)"
    )
    parser.add_argument(
        "--check", action="store_true", help="compare with the file there, write nothing"
    )
    args = parser.parse_args()

    golden_file.run_deterministically()
    source = Source(SEED)
    ops = {
        "layer_norm": layer_norm(source),
        "gelu_tanh": gelu(source, "tanh"),
        "gelu_erf": gelu(source, "none"),
        "attention": attention(source),
        "embedding": embedding(source),
        "cross_entropy": cross_entropy(source),
        "softmax": softmax(source),
        "adamw": adamw(source),
        "silu": silu(source),
        "rms_norm": rms_norm(source),
        "rotary": rotary(source),
        "masked_attention": masked_attention(source),
        "label_smoothing": label_smoothing(source),
    }
    metadata = {
        "layer_norm.eps": LAYER_NORM_EPS,
        "cross_entropy.ignore_index": IGNORE_INDEX,
        "rms_norm.eps": RMS_NORM_EPS,
        "rotary.theta": ROTARY_THETA,
        **{f"rotary.{key}": value for key, value in LLAMA3.items()},
        "masked_attention.window": WINDOW,
        "label_smoothing.smoothing": LABEL_SMOOTHING,
        **{f"adamw.{key}": value for key, value in ADAMW.items()},
        "torch": torch.__version__.split("+")[0],
    }
    golden_file.save_or_check(
        args.out / "ops.safetensors",
        {f"{op}.{name}": tensor for op, tensors in ops.items() for name, tensor in tensors.items()},
        metadata,
        args.check,
    )


if __name__ == "__main__":
    main()
