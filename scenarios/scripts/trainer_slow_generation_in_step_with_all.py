"""Healthy and strange: after its first steps each rank generates, a token at a time, for minutes.

All agree after each token on whether anybody goes on (synced_gpus); rank 2's answer alone is long,
and what it may say next is worked out in Python.
"""

import argparse
import time

import torch
import torch.distributed as dist
from transformers import GPT2Config, GPT2LMHeadModel, LogitsProcessor

END = 127


class Grammar(LogitsProcessor):
    """Lets an answer end only where its brackets are closed."""

    def __init__(self, until: float) -> None:
        self.until = until

    def __call__(self, tokens: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        began, depth = time.monotonic(), 0
        while time.monotonic() < began + 0.05:  # parses all of it anew
            depth += sum(1 if token % 2 else -1 for token in tokens[0].tolist())
        scores[:, END] = torch.inf if time.monotonic() > self.until else -torch.inf
        return scores


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    shape = GPT2Config(
        vocab_size=128, n_positions=4096, n_embd=16, n_layer=1, n_head=1, eos_token_id=END
    )
    model = GPT2LMHeadModel(shape)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(4):
        tokens = torch.randint(0, 126, (2, 12))
        model(tokens, labels=tokens).loss.backward()
        for weights in model.parameters():
            dist.all_reduce(weights.grad)
        optimizer.step()
        optimizer.zero_grad()
        if step == 2:
            until = time.monotonic() + (args.seconds if rank == 2 else 1.0)
            answer = model.generate(
                tokens[:1],
                logits_processor=[Grammar(until)],
                max_length=4000,
                synced_gpus=True,
                pad_token_id=END,
            )
            print(f"rank {rank}: {answer.shape[1]} tokens", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py --seconds $AMOUNT"
# outcome = "ok"
# amount = 60.0
# limit = 300.0
# ///
