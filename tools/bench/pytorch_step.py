"""GPT-2 124M in plain PyTorch: the other side of compare_pytorch.

Says "ready" when warmed up; then does one training step for each line of the standard input and
says its seconds; at the end, a JSON object with its peak memory. With --fsdp it is one rank of those
that RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT name, and FSDP2 shards the model over them by gloo.
"""

import argparse
import json
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F

VOCAB, POSITIONS, LAYERS, HEADS, WIDTH = 50257, 1024, 12, 12, 768


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_attn = nn.Linear(WIDTH, 3 * WIDTH)
        self.c_proj = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        batch, positions, _ = x.shape
        q, k, v = (part.view(batch, positions, HEADS, WIDTH // HEADS).transpose(1, 2)
                   for part in self.c_attn(x).split(WIDTH, dim=-1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(batch, positions, WIDTH))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1 = nn.LayerNorm(WIDTH)
        self.attn = Attention()
        self.ln_2 = nn.LayerNorm(WIDTH)
        self.c_fc = nn.Linear(WIDTH, 4 * WIDTH)
        self.c_proj = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.c_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(VOCAB, WIDTH)
        self.wpe = nn.Embedding(POSITIONS, WIDTH)
        self.h = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_f = nn.LayerNorm(WIDTH)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe.weight[:tokens.shape[1]]
        for block in self.h:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, VOCAB), targets.view(-1))


def peak_memory_mib():
    with open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return 0.0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--seq-len", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--fsdp", action="store_true")
    arguments = parser.parse_args()

    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    model = Gpt2()
    rank = 0
    if arguments.fsdp:
        # As `bench step --ranks` does it: the blocks, and the model with what they leave.
        dist.init_process_group("gloo")
        rank = dist.get_rank()
        for block in model.h:
            fully_shard(block)
        fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8,
                                  weight_decay=0.1, fused=True)
    torch.manual_seed(2 + rank)
    shape = (arguments.batch, arguments.seq_len)
    tokens = torch.randint(VOCAB, shape)
    targets = torch.randint(VOCAB, shape)
    loss_of = torch.compile(model) if arguments.compile else model

    def step():
        if arguments.fsdp:
            dist.barrier()
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss_of(tokens, targets).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return time.perf_counter() - begin

    step()
    step()
    print("ready", flush=True)
    for _ in sys.stdin:
        print(f"{step():.6f}", flush=True)
    print(json.dumps({"figures": [{"name": "peak_memory", "value": peak_memory_mib(),
                                   "unit": "MiB"}]}), flush=True)
    if arguments.fsdp:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
