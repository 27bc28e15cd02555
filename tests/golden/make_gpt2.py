#!/usr/bin/env python3
"""Makes the golden files of a tiny GPT-2: logits, loss, every gradient, and 50 AdamW steps.

The model is written out below in plain PyTorch, so that the golden values do not depend on the
model code of any library. README.md in this folder lists what the files hold.

    python3 -m venv /tmp/golden
    /tmp/golden/bin/pip install torch==2.9.1 numpy safetensors
    /tmp/golden/bin/python tests/golden/make_gpt2.py            # writes the files
    /tmp/golden/bin/python tests/golden/make_gpt2.py --check    # compares with the committed ones

With `pip install transformers`, --check-transformers compares the plain model with the
GPT2LMHeadModel of Hugging Face.
"""

import argparse
import math
import pathlib

import numpy
import torch
import torch.nn.functional as F

import golden_file

CONFIG = {
    "vocab_size": 61,
    "n_positions": 24,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "layer_norm_epsilon": 1e-5,
    "activation_function": "gelu_new",
    "tie_word_embeddings": True,
}
BATCH_SIZE = 3
SEQ_LEN = 17
IGNORE_INDEX = -100
SEED = 20240229

ADAMW = {
    "steps": 50,
    "num_batches": 4,
    "lr": 1e-2,
    "beta1": 0.9,
    "beta2": 0.95,
    "eps": 1e-8,
    "weight_decay": 0.1,
}


def parameter_shapes():
    """Names and shapes in the order of the model; every matrix is [out_features, in_features]."""
    width = CONFIG["n_embd"]
    shapes = {
        "wte.weight": (CONFIG["vocab_size"], width),
        "wpe.weight": (CONFIG["n_positions"], width),
    }

    def linear(name, out_features, in_features):
        shapes[f"{name}.weight"] = (out_features, in_features)
        shapes[f"{name}.bias"] = (out_features,)

    def layer_norm(name):
        shapes[f"{name}.weight"] = (width,)
        shapes[f"{name}.bias"] = (width,)

    for layer in range(CONFIG["n_layer"]):
        layer_norm(f"h.{layer}.ln_1")
        linear(f"h.{layer}.attn.c_attn", 3 * width, width)
        linear(f"h.{layer}.attn.c_proj", width, width)
        layer_norm(f"h.{layer}.ln_2")
        linear(f"h.{layer}.mlp.c_fc", 4 * width, width)
        linear(f"h.{layer}.mlp.c_proj", width, 4 * width)
    layer_norm("ln_f")
    return shapes


def initial_parameters(rng):
    """Random everywhere: a forgotten bias or norm weight must change the result."""
    params = {}
    for name, shape in parameter_shapes().items():
        values = 0.1 * rng.standard_normal(shape)
        if name.split(".")[-2].startswith("ln_") and name.endswith("weight"):
            values += 1.0
        params[name] = torch.from_numpy(values)
    return params


def random_batch(rng):
    """Tokens and next-token targets [B, T]; about one target in six is ignored."""
    stream = rng.integers(0, CONFIG["vocab_size"], (BATCH_SIZE, SEQ_LEN + 1))
    tokens, targets = stream[:, :-1].copy(), stream[:, 1:].copy()
    targets[rng.random(targets.shape) < 1 / 6] = IGNORE_INDEX
    targets[0, 0] = targets[-1, -1] = IGNORE_INDEX
    return torch.from_numpy(tokens), torch.from_numpy(targets)


def layer_norm(x, weight, bias):
    mean = x.mean(-1, keepdim=True)
    variance = (x - mean).square().mean(-1, keepdim=True)
    return (x - mean) / torch.sqrt(variance + CONFIG["layer_norm_epsilon"]) * weight + bias


def gelu_tanh(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def attention(qkv, num_heads):
    """Causal attention of packed [q, k, v]: [B, T, 3 * C] -> [B, T, C]."""
    batch, length, width = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3
    head_dim = width // num_heads
    q, k, v = (
        part.view(batch, length, num_heads, head_dim).transpose(1, 2)
        for part in qkv.split(width, dim=-1)
    )
    scores = q @ k.transpose(-1, -2) / math.sqrt(head_dim)
    future = torch.ones(length, length, dtype=torch.bool).triu(1)
    probs = scores.masked_fill(future, -math.inf).softmax(-1)
    return (probs @ v).transpose(1, 2).reshape(batch, length, width)


def forward(params, tokens):
    """Logits [B, T, V]."""

    def linear(name, x):
        return x @ params[f"{name}.weight"].T + params[f"{name}.bias"]

    def norm(name, x):
        return layer_norm(x, params[f"{name}.weight"], params[f"{name}.bias"])

    x = params["wte.weight"][tokens] + params["wpe.weight"][: tokens.shape[1]]
    for layer in range(CONFIG["n_layer"]):
        block = f"h.{layer}"
        qkv = linear(f"{block}.attn.c_attn", norm(f"{block}.ln_1", x))
        x = x + linear(f"{block}.attn.c_proj", attention(qkv, CONFIG["n_head"]))
        hidden = gelu_tanh(linear(f"{block}.mlp.c_fc", norm(f"{block}.ln_2", x)))
        x = x + linear(f"{block}.mlp.c_proj", hidden)
    return norm("ln_f", x) @ params["wte.weight"].T


def mean_loss(logits, targets):
    """Cross entropy, mean over the targets that are not ignored."""
    return F.cross_entropy(
        logits.reshape(-1, logits.shape[-1]), targets.reshape(-1), ignore_index=IGNORE_INDEX
    )


def leaves(params, dtype):
    """Copies of `params` in `dtype` that collect gradients."""
    return {
        name: param.to(dtype, copy=True).requires_grad_() for name, param in params.items()
    }


def forward_and_backward(master, tokens, targets, dtype):
    """The tensors of gpt2_tiny.<dtype>.safetensors."""
    params = leaves(master, dtype)
    logits = forward(params, tokens)
    loss = mean_loss(logits, targets)
    loss.backward()
    return {
        "tokens": tokens,
        "targets": targets,
        **{f"param.{name}": param for name, param in params.items()},
        "logits": logits,
        "loss": loss.reshape(1),
        **{f"grad.{name}": param.grad for name, param in params.items()},
    }


def train(master, batches):
    """The tensors of gpt2_tiny.adamw.safetensors: float64, no clipping, constant lr."""
    params = leaves(master, torch.float64)
    optimizer = torch.optim.AdamW(
        [
            {
                "params": [param for param in params.values() if param.dim() >= 2],
                "weight_decay": ADAMW["weight_decay"],
            },
            {
                "params": [param for param in params.values() if param.dim() < 2],
                "weight_decay": 0.0,
            },
        ],
        lr=ADAMW["lr"],
        betas=(ADAMW["beta1"], ADAMW["beta2"]),
        eps=ADAMW["eps"],
        foreach=False,
    )
    losses = []
    for step in range(ADAMW["steps"]):
        tokens, targets = batches[step % len(batches)]
        optimizer.zero_grad()
        loss = mean_loss(forward(params, tokens), targets)
        losses.append(loss.detach())
        loss.backward()
        optimizer.step()

    tensors = {}
    for index, (tokens, targets) in enumerate(batches):
        tensors[f"batch.{index}.tokens"] = tokens
        tensors[f"batch.{index}.targets"] = targets
    tensors["losses"] = torch.stack(losses)
    tensors["final_param_norms"] = torch.stack([param.detach().norm() for param in params.values()])
    return tensors


def check_transformers(params, tokens, targets):
    """Logits, loss and gradients of the plain model against GPT2LMHeadModel, in float64."""
    import transformers

    config = transformers.GPT2Config(
        **CONFIG,
        attn_pdrop=0.0,
        embd_pdrop=0.0,
        resid_pdrop=0.0,
        attn_implementation="eager",
    )
    model = transformers.GPT2LMHeadModel(config).double()

    def is_transposed(name):
        return name.endswith("weight") and name.split(".")[-2].startswith("c_")

    state = {
        f"transformer.{name}": param.T if is_transposed(name) else param
        for name, param in params.items()
    }
    state["lm_head.weight"] = params["wte.weight"]
    model.load_state_dict(state)
    logits = model(tokens).logits
    loss = mean_loss(logits, targets)
    loss.backward()

    ours = forward_and_backward(params, tokens, targets, torch.float64)
    theirs = {"logits": logits, "loss": loss.reshape(1)}
    for name, param in model.transformer.named_parameters():
        theirs[f"grad.{name}"] = param.grad.T if is_transposed(name) else param.grad
    assert {name for name in ours if name.startswith("grad.")} <= theirs.keys()
    worst = 0.0
    for name, tensor in theirs.items():
        difference = float((tensor - ours[name]).detach().norm() / ours[name].detach().norm())
        assert difference <= 1e-12, f"{name} differs by {difference:.1e}"
        worst = max(worst, difference)
    print(
        f"transformers {transformers.__version__}: {len(theirs)} tensors agree, "
        f"worst relative difference {worst:.1e}"
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--out", type=pathlib.Path, default=golden_file.FOLDER, help="folder (default: this one)"
    )
    parser.add_argument(
        "--check", action="store_true", help="compare with the files there, write nothing"
    )
    parser.add_argument(
        "--check-transformers",
        action="store_true",
        help="compare the plain model with Hugging Face's, write nothing",
    )
    args = parser.parse_args()

    golden_file.run_deterministically()
    rng = numpy.random.Generator(numpy.random.PCG64(SEED))
    params = initial_parameters(rng)
    tokens, targets = random_batch(rng)
    batches = [random_batch(rng) for _ in range(ADAMW["num_batches"])]
    if args.check_transformers:
        check_transformers(params, tokens, targets)
        return

    metadata = {
        **CONFIG,
        "batch_size": BATCH_SIZE,
        "seq_len": SEQ_LEN,
        "ignore_index": IGNORE_INDEX,
        "torch": torch.__version__.split("+")[0],
    }
    for dtype in (torch.float64, torch.float32):
        dtype_name = str(dtype).removeprefix("torch.")
        golden_file.save_or_check(
            args.out / f"gpt2_tiny.{dtype_name}.safetensors",
            forward_and_backward(params, tokens, targets, dtype),
            {**metadata, "dtype": dtype_name},
            args.check,
        )
    golden_file.save_or_check(
        args.out / "gpt2_tiny.adamw.safetensors",
        train(params, batches),
        {
            **metadata,
            **ADAMW,
            "dtype": "float64",
            "decayed": "parameters with at least 2 dimensions",
            "parameter_order": ",".join(params),
        },
        args.check,
    )


if __name__ == "__main__":
    main()
