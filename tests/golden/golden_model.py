"""What the scripts that make models share: batches, documents, gradients and training."""

import dataclasses

import numpy
import torch
import torch.nn.functional as F

IGNORE_INDEX = -100
BATCH_SIZE = 3
SEQ_LEN = 17

ADAMW = {
    "steps": 50,
    "num_batches": 4,
    "lr": 1e-2,
    "beta1": 0.9,
    "beta2": 0.95,
    "eps": 1e-8,
    "weight_decay": 0.1,
}


@dataclasses.dataclass
class Batch:
    """All int64 [B, T]; positions count from the beginning of each document."""

    tokens: torch.Tensor
    targets: torch.Tensor
    positions: torch.Tensor
    documents: torch.Tensor

    def tensors(self, with_documents):
        """By the names they have in a file."""
        names = ["tokens", "targets"] + ["positions", "documents"] * with_documents
        return {name: getattr(self, name) for name in names}


def random_batch(rng, vocab_size):
    """One document to a row; about one target in six is ignored."""
    stream = rng.integers(0, vocab_size, (BATCH_SIZE, SEQ_LEN + 1))
    tokens, targets = stream[:, :-1].copy(), stream[:, 1:].copy()
    targets[rng.random(targets.shape) < 1 / 6] = IGNORE_INDEX
    targets[0, 0] = targets[-1, -1] = IGNORE_INDEX
    positions = torch.arange(SEQ_LEN).expand(BATCH_SIZE, SEQ_LEN).contiguous()
    return Batch(
        torch.from_numpy(tokens),
        torch.from_numpy(targets),
        positions,
        torch.zeros_like(positions),
    )


def with_documents(rng, batch):
    """The same tokens cut into documents; the last token of each predicts nothing."""
    starts = rng.random((BATCH_SIZE, SEQ_LEN)) < 1 / 8
    starts[:, 0] = False
    starts[0, 9] = starts[-1, -1] = True  # not left to chance: a long one, and one of one token
    documents = torch.from_numpy(numpy.cumsum(starts, axis=1))
    index = numpy.arange(SEQ_LEN)
    begins = numpy.maximum.accumulate(numpy.where(starts, index, 0), axis=1)
    targets = batch.targets.clone()
    targets[:, :-1][torch.from_numpy(starts[:, 1:])] = IGNORE_INDEX
    return Batch(batch.tokens, targets, torch.from_numpy(index - begins), documents)


def visible(documents, window):
    """[B, 1, T, T]: which keys a query sees, none after it, of its own document, and of these the
    last `window`, itself included; 0: all."""
    index = torch.arange(documents.shape[1])
    distance = index[:, None] - index[None, :]
    seen = (distance >= 0) & ((distance < window) if window > 0 else True)
    same = documents[:, :, None] == documents[:, None, :]
    return (same & seen)[:, None]


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


def forward_and_backward(forward, master, batch, dtype):
    """Logits, loss and every gradient, and the parameters they belong to."""
    params = leaves(master, dtype)
    logits = forward(params, batch)
    loss = mean_loss(logits, batch.targets)
    loss.backward()
    return {
        **{f"param.{name}": param for name, param in params.items()},
        "logits": logits,
        "loss": loss.reshape(1),
        **{f"grad.{name}": param.grad for name, param in params.items()},
    }


def train(forward, master, batches):
    """Losses and final norms of float64 steps without clipping, at a constant lr."""
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
        batch = batches[step % len(batches)]
        optimizer.zero_grad()
        loss = mean_loss(forward(params, batch), batch.targets)
        losses.append(loss.detach())
        loss.backward()
        optimizer.step()
    return {
        "losses": torch.stack(losses),
        "final_param_norms": torch.stack([param.detach().norm() for param in params.values()]),
    }


def batch_tensors(batches, documents):
    """batch.<k>.<name> for every batch."""
    return {
        f"batch.{index}.{name}": tensor
        for index, batch in enumerate(batches)
        for name, tensor in batch.tensors(documents).items()
    }


def compare(theirs, ours, library):
    """Norm of each difference against that of our tensor: 1e-12 at most."""
    assert {name for name in ours if name.startswith("grad.")} <= theirs.keys()
    worst = 0.0
    for name, tensor in theirs.items():
        difference = float((tensor - ours[name]).detach().norm() / ours[name].detach().norm())
        assert difference <= 1e-12, f"{name} differs by {difference:.1e}"
        worst = max(worst, difference)
    print(
        f"{library}: {len(theirs)} tensors agree, worst relative difference {worst:.1e}"
    )
