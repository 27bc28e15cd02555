#!/usr/bin/env python3
"""Makes the golden files of two tiny Llamas: logits, loss, every gradient, and 50 AdamW steps.

The model is written out below in plain PyTorch, so that the golden values do not depend on the
model code of any library. README.md in this folder lists what the files hold.

    python3 -m venv /tmp/golden
    /tmp/golden/bin/pip install torch numpy safetensors
    /tmp/golden/bin/python tests/golden/make_llama.py            # writes the files
    /tmp/golden/bin/python tests/golden/make_llama.py --check    # compares with the committed ones

With `pip install transformers`, --check-transformers compares the plain model with the
LlamaForCausalLM of Hugging Face, document and window masks included.
"""

import argparse
import math
import pathlib

import numpy
import torch
import torch.nn.functional as F

import golden_file
import golden_model

SEED = 20240302

COMMON = {
    "vocab_size": 61,
    "max_position_embeddings": 40,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
# Wavelengths 6.3 (kept), 13.5 and 29 (between), 63 and more (stretched) of this first one.
CONFIGS = {
    "llama_tiny": {
        **COMMON,
        "head_dim": 12,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False,
        "rope_theta": 100.0,
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
        "window": 5,
        "documents": True,
    },
    "llama_tied": {
        **COMMON,
        "head_dim": 8,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": True,
        "rope_theta": 10000.0,
        "rope_type": "linear",
        "factor": 2.5,
        "window": 0,
        "documents": False,
    },
}


def parameter_shapes(config):
    """Names and shapes in the order of the model; every matrix is [out_features, in_features]."""
    width, ffn = config["hidden_size"], config["intermediate_size"]
    heads = config["num_attention_heads"] * config["head_dim"]
    kv_heads = config["num_key_value_heads"] * config["head_dim"]
    shapes = {"model.embed_tokens.weight": (config["vocab_size"], width)}
    for layer in range(config["num_hidden_layers"]):
        block = f"model.layers.{layer}"
        shapes[f"{block}.input_layernorm.weight"] = (width,)
        shapes[f"{block}.self_attn.q_proj.weight"] = (heads, width)
        shapes[f"{block}.self_attn.k_proj.weight"] = (kv_heads, width)
        shapes[f"{block}.self_attn.v_proj.weight"] = (kv_heads, width)
        shapes[f"{block}.self_attn.o_proj.weight"] = (width, heads)
        shapes[f"{block}.post_attention_layernorm.weight"] = (width,)
        shapes[f"{block}.mlp.gate_proj.weight"] = (ffn, width)
        shapes[f"{block}.mlp.up_proj.weight"] = (ffn, width)
        shapes[f"{block}.mlp.down_proj.weight"] = (width, ffn)
    shapes["model.norm.weight"] = (width,)
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (config["vocab_size"], width)
    return shapes


def initial_parameters(rng, config):
    """Larger than a model starts with, so that attention is far from uniform."""
    params = {}
    for name, shape in parameter_shapes(config).items():
        values = 0.2 * rng.standard_normal(shape)
        if name.endswith("norm.weight"):
            values += 1.0
        params[name] = torch.from_numpy(values)
    return params


def frequencies(config):
    """Of the rotation, per pair and step of the position, float64 [head_dim / 2]."""
    half = torch.arange(config["head_dim"] // 2, dtype=torch.float64)
    plain = config["rope_theta"] ** (-2 * half / config["head_dim"])
    stretched = plain / config["factor"]
    if config["rope_type"] == "linear":
        return stretched
    low, high = config["low_freq_factor"], config["high_freq_factor"]
    turns = config["original_max_position_embeddings"] * plain / (2 * math.pi)
    smooth = ((turns - low) / (high - low)).clamp(0, 1)
    return (1 - smooth) * stretched + smooth * plain


def rotary(x, angles):
    """Turns the pairs (x_i, x_{i + D/2}) of [B, H, T, D] by angles [B, 1, T, D/2]."""
    a, b = x.chunk(2, dim=-1)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


def rms_norm(x, weight, eps):
    return x / torch.sqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def forward(config, params, batch):
    """Logits [B, T, V]."""
    head_dim = config["head_dim"]
    group = config["num_attention_heads"] // config["num_key_value_heads"]
    angles = batch.positions[:, None, :, None].double() * frequencies(config)
    visible = golden_model.visible(batch.documents, config["window"])

    def linear(name, x):
        return x @ params[f"{name}.weight"].T

    def norm(name, x):
        return rms_norm(x, params[f"{name}.weight"], config["rms_norm_eps"])

    def heads(name, x):
        return linear(name, x).unflatten(-1, (-1, head_dim)).transpose(1, 2)

    def attention(name, x):
        q = rotary(heads(f"{name}.q_proj", x), angles)
        k = rotary(heads(f"{name}.k_proj", x), angles).repeat_interleave(group, dim=1)
        v = heads(f"{name}.v_proj", x).repeat_interleave(group, dim=1)
        scores = q @ k.transpose(-1, -2) / math.sqrt(head_dim)
        probs = scores.masked_fill(~visible, -math.inf).softmax(-1)
        return linear(f"{name}.o_proj", (probs @ v).transpose(1, 2).flatten(2))

    def feed_forward(name, x):
        gate = linear(f"{name}.gate_proj", x)
        return linear(f"{name}.down_proj", gate * gate.sigmoid() * linear(f"{name}.up_proj", x))

    x = params["model.embed_tokens.weight"][batch.tokens]
    for layer in range(config["num_hidden_layers"]):
        block = f"model.layers.{layer}"
        x = x + attention(f"{block}.self_attn", norm(f"{block}.input_layernorm", x))
        x = x + feed_forward(f"{block}.mlp", norm(f"{block}.post_attention_layernorm", x))
    head = "model.embed_tokens" if config["tie_word_embeddings"] else "lm_head"
    return linear(head, norm("model.norm", x))


def check_transformers(name, config, params, batch):
    """Logits, loss and gradients of the plain model against LlamaForCausalLM, in float64."""
    import transformers

    ours_alone = {"window", "documents"}
    rope = {
        key: config[key]
        for key in (
            "rope_theta",
            "rope_type",
            "factor",
            "low_freq_factor",
            "high_freq_factor",
            "original_max_position_embeddings",
        )
        if key in config
    }
    model = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            **{key: value for key, value in config.items() if key not in {*rope, *ours_alone}},
            rope_parameters=rope,
            attn_implementation="sdpa",
            bos_token_id=None,
            eos_token_id=None,
        )
    ).double()
    # Hugging Face computes angles and norms in float32, which would hide differences below 1e-7.
    inv_freq = model.model.rotary_emb.inv_freq
    expected = frequencies(config)
    difference = float((inv_freq - expected).abs().max() / expected.max())
    assert difference <= 1e-6, f"{name}: frequencies differ by {difference:.1e}"

    def exact_angles(x, position_ids):
        angles = position_ids[:, :, None].double() * expected
        angles = torch.cat([angles, angles], dim=-1)
        return angles.cos().to(x.dtype), angles.sin().to(x.dtype)

    def exact_norm(norm, x):
        return F.rms_norm(x, x.shape[-1:], norm.weight, norm.variance_epsilon)

    model.model.rotary_emb.forward = exact_angles
    transformers.models.llama.modeling_llama.LlamaRMSNorm.forward = exact_norm
    missing, unexpected = model.load_state_dict(params, strict=False)
    tied = {"lm_head.weight"} if config["tie_word_embeddings"] else set()
    assert set(missing) == tied and not unexpected, (missing, unexpected)

    visible = golden_model.visible(batch.documents, config["window"])
    mask = torch.zeros(visible.shape, dtype=torch.float64).masked_fill(
        ~visible, torch.finfo(torch.float64).min
    )
    logits = model(batch.tokens, attention_mask=mask, position_ids=batch.positions).logits
    loss = golden_model.mean_loss(logits, batch.targets)
    loss.backward()
    theirs = {"logits": logits, "loss": loss.reshape(1)}
    for parameter, value in model.named_parameters():
        theirs[f"grad.{parameter}"] = value.grad
    ours = golden_model.forward_and_backward(
        lambda *args: forward(config, *args), params, batch, torch.float64
    )
    golden_model.compare(theirs, ours, f"{name}, transformers {transformers.__version__}")


def make_files(name, config, arguments):
    rng = numpy.random.Generator(numpy.random.PCG64([SEED, list(CONFIGS).index(name)]))
    params = initial_parameters(rng, config)

    def batch():
        rows = golden_model.random_batch(rng, config["vocab_size"])
        return golden_model.with_documents(rng, rows) if config["documents"] else rows

    first = batch()
    batches = [batch() for _ in range(golden_model.ADAMW["num_batches"])]
    if arguments.check_transformers:
        check_transformers(name, config, params, first)
        return

    def run(params, rows):
        return forward(config, params, rows)

    metadata = {**config, "torch": torch.__version__.split("+")[0]}
    for dtype in (torch.float64, torch.float32):
        dtype_name = str(dtype).removeprefix("torch.")
        golden_file.save_or_check(
            arguments.out / f"{name}.{dtype_name}.safetensors",
            {
                **first.tensors(True),
                **golden_model.forward_and_backward(run, params, first, dtype),
            },
            {**metadata, "dtype": dtype_name},
            arguments.check,
        )
    if name == "llama_tiny":
        golden_file.save_or_check(
            arguments.out / f"{name}.adamw.safetensors",
            {
                **golden_model.batch_tensors(batches, True),
                **golden_model.train(run, params, batches),
            },
            {
                **metadata,
                **golden_model.ADAMW,
                "dtype": "float64",
                "decayed": "parameters with at least 2 dimensions",
                "parameter_order": ",".join(params),
            },
            arguments.check,
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
    arguments = parser.parse_args()
    golden_file.run_deterministically()
    for name, config in CONFIGS.items():
        make_files(name, config, arguments)


if __name__ == "__main__":
    main()
