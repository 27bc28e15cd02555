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

import golden_file
import golden_model

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
SEED = 20240229
# Of the file with documents.
WINDOW = 6


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


def layer_norm(x, weight, bias):
    mean = x.mean(-1, keepdim=True)
    variance = (x - mean).square().mean(-1, keepdim=True)
    return (x - mean) / torch.sqrt(variance + CONFIG["layer_norm_epsilon"]) * weight + bias


def gelu_tanh(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def attention(qkv, num_heads, visible):
    """Attention of packed [q, k, v]: [B, T, 3 * C] -> [B, T, C]."""
    batch, length, width = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3
    head_dim = width // num_heads
    q, k, v = (
        part.view(batch, length, num_heads, head_dim).transpose(1, 2)
        for part in qkv.split(width, dim=-1)
    )
    scores = q @ k.transpose(-1, -2) / math.sqrt(head_dim)
    probs = scores.masked_fill(~visible, -math.inf).softmax(-1)
    return (probs @ v).transpose(1, 2).reshape(batch, length, width)


def forward(params, batch, window=0):
    """Logits [B, T, V]."""
    visible = golden_model.visible(batch.documents, window)

    def linear(name, x):
        return x @ params[f"{name}.weight"].T + params[f"{name}.bias"]

    def norm(name, x):
        return layer_norm(x, params[f"{name}.weight"], params[f"{name}.bias"])

    x = params["wte.weight"][batch.tokens] + params["wpe.weight"][batch.positions]
    for layer in range(CONFIG["n_layer"]):
        block = f"h.{layer}"
        qkv = linear(f"{block}.attn.c_attn", norm(f"{block}.ln_1", x))
        x = x + linear(f"{block}.attn.c_proj", attention(qkv, CONFIG["n_head"], visible))
        hidden = gelu_tanh(linear(f"{block}.mlp.c_fc", norm(f"{block}.ln_2", x)))
        x = x + linear(f"{block}.mlp.c_proj", hidden)
    return norm("ln_f", x) @ params["wte.weight"].T


def check_transformers(params, batch):
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
    logits = model(batch.tokens).logits
    loss = golden_model.mean_loss(logits, batch.targets)
    loss.backward()

    ours = golden_model.forward_and_backward(forward, params, batch, torch.float64)
    theirs = {"logits": logits, "loss": loss.reshape(1)}
    for name, param in model.transformer.named_parameters():
        theirs[f"grad.{name}"] = param.grad.T if is_transposed(name) else param.grad
    golden_model.compare(theirs, ours, f"transformers {transformers.__version__}")


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
    vocab_size = CONFIG["vocab_size"]
    batch = golden_model.random_batch(rng, vocab_size)
    batches = [
        golden_model.random_batch(rng, vocab_size)
        for _ in range(golden_model.ADAMW["num_batches"])
    ]
    documents = golden_model.with_documents(rng, batch)
    if args.check_transformers:
        check_transformers(params, batch)
        return

    metadata = {
        **CONFIG,
        "batch_size": golden_model.BATCH_SIZE,
        "seq_len": golden_model.SEQ_LEN,
        "ignore_index": golden_model.IGNORE_INDEX,
        "torch": torch.__version__.split("+")[0],
    }
    for dtype in (torch.float64, torch.float32):
        dtype_name = str(dtype).removeprefix("torch.")
        golden_file.save_or_check(
            args.out / f"gpt2_tiny.{dtype_name}.safetensors",
            {
                **batch.tensors(False),
                **golden_model.forward_and_backward(forward, params, batch, dtype),
            },
            {**metadata, "dtype": dtype_name},
            args.check,
        )
    golden_file.save_or_check(
        args.out / "gpt2_tiny.adamw.safetensors",
        {
            **golden_model.batch_tensors(batches, False),
            **golden_model.train(forward, params, batches),
        },
        {
            **metadata,
            **golden_model.ADAMW,
            "dtype": "float64",
            "decayed": "parameters with at least 2 dimensions",
            "parameter_order": ",".join(params),
        },
        args.check,
    )
    results = golden_model.forward_and_backward(
        lambda params, batch: forward(params, batch, WINDOW), params, documents, torch.float64
    )
    golden_file.save_or_check(
        args.out / "gpt2_tiny.documents.safetensors",
        {
            **documents.tensors(True),
            **{name: value for name, value in results.items() if not name.startswith("param.")},
        },
        {**metadata, "dtype": "float64", "window": WINDOW},
        args.check,
    )


if __name__ == "__main__":
    main()
