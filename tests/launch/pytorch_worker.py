"""A script as users of torchrun have them: nothing in it knows who launches it.

Trains a small model with DistributedDataParallel over gloo and prints what rank 0 has learned.
"""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    assert (rank, size) == (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    assert int(os.environ["LOCAL_RANK"]) == rank
    torch.manual_seed(1)
    model = DistributedDataParallel(torch.nn.Linear(4, 1, bias=False).double())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    wanted = torch.tensor([1.0, -2.0, 3.0, 0.5], dtype=torch.float64)
    torch.manual_seed(100 + rank)
    for _ in range(200):
        x = torch.randn(16, 4, dtype=torch.float64)
        optimizer.zero_grad()
        (model(x).squeeze(1) - x @ wanted).square().mean().backward()
        optimizer.step()
    # The replicas are equal, and have learned from each other.
    mine = model.module.weight.detach().flatten()
    sums = mine.clone()
    dist.all_reduce(sums)
    assert torch.equal(sums / size, mine), (rank, sums / size, mine)
    if rank == 0:
        print("learned", [round(value, 3) for value in mine.tolist()], "with", size, flush=True)
    dist.destroy_process_group()


main()
# PyTorch 2.15 aborts now and then while Python ends, under torchrun as well: its matter, not the launcher's.
os._exit(0)
