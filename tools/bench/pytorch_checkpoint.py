"""Checkpoints of GPT-2 124M with AdamW by torch.distributed.checkpoint: the other side of
compare_pytorch --checkpoint.

Says "ready" when warmed up; then, for each line of the standard input, saves, saves in the background
and loads, and says the seconds of each, of the second until training could go on; at the end, a JSON
object with the size.
"""

import argparse
import json
import os
import pathlib
import shutil
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict

from pytorch_step import Gpt2


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--threads", type=int, required=True)
    arguments = parser.parse_args()

    torch.set_num_threads(arguments.threads)
    dist.init_process_group("gloo")  # saves in the background demand one
    torch.manual_seed(1)
    model = Gpt2()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    folder = arguments.folder / f"fsdptrain-bench-dcp-{os.getpid()}"
    count = 0

    def state():
        of_model, of_optimizer = get_state_dict(model, optimizer)
        return {"model": of_model, "optimizer": of_optimizer}

    def timed(action):
        begin = time.perf_counter()
        result = action()
        return time.perf_counter() - begin, result

    def turn():
        nonlocal count
        count += 1
        path = folder / str(count)
        save, _ = timed(lambda: dcp.save(state(), checkpoint_id=path))
        # Of the one before there is nothing under way.
        stall, future = timed(lambda: dcp.async_save(state(), checkpoint_id=folder / f"{count}-async"))
        future.result()
        shutil.rmtree(folder / f"{count}-async")
        load, _ = timed(lambda: dcp.load(state(), checkpoint_id=path))
        shutil.rmtree(path)
        return save, stall, load

    try:
        turn()
        print("ready", flush=True)
        for _ in sys.stdin:
            print(" ".join(f"{seconds:.6f}" for seconds in turn()), flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    size = 3 * sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    print(json.dumps({"figures": [{"name": "size", "value": size * 1e-9, "unit": "GB"}]}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
