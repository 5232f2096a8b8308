"""ZeRO-3: each rank writes a sample until its own end mark comes, and that of rank 1 comes first.

Each token is a forward, in which all ranks gather the weights; rank 1 is in the barrier behind.
"""

import argparse

import deepspeed
import torch

SHAPE = {
    "train_micro_batch_size_per_gpu": 4,
    "optimizer": {"type": "Adam", "params": {"lr": 0.001, "torch_adam": True}},
    "zero_optimization": {
        "stage": 3,
        "stage3_param_persistence_threshold": 0,
        "stage3_max_live_parameters": 0,
        "stage3_max_reuse_distance": 0,
        "stage3_prefetch_bucket_size": 0,
    },
}
LONGEST = 20


class Writer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(32, 48)
        self.head = torch.nn.Linear(48, 32)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.words(tokens).mean(1))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=-1)
    deepspeed.add_config_arguments(parser)
    return parser.parse_args()


@torch.no_grad()
def write_sample(engine: torch.nn.Module, length: int) -> list[int]:
    """Write until the end mark, which a trained model puts at its own time: after `length`."""
    tokens = torch.ones(1, 1, dtype=torch.long)
    while tokens.shape[1] < LONGEST:
        logits = engine(tokens)
        following = logits.argmax(-1, keepdim=True)
        tokens = torch.cat([tokens, following], dim=1)
        if tokens.shape[1] > length:
            break
    return tokens[0].tolist()


def main() -> None:
    args = arguments()
    torch.set_num_threads(1)
    deepspeed.init_distributed("gloo")
    model = Writer()
    engine, *_ = deepspeed.initialize(
        args=args, model=model, model_parameters=model.parameters(), config=SHAPE
    )
    rank = engine.global_rank
    for step in range(3):
        loss = engine(torch.randint(0, 32, (4, 6))).pow(2).mean()
        engine.backward(loss)
        engine.step()
        if rank == 0:
            print(f"step {step}: {loss.item():.3f}", flush=True)
    engine.eval()
    sample = write_sample(engine, 4 if rank == 1 else 15)
    deepspeed.comm.barrier()
    print(f"rank {rank}: {sample}", flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "deepspeed --num_gpus 3 --master_port $PORT train.py"
# world = "built"
# culprits = [[1]]
# culprits_by_stacks = [[]]
# waiting = [0, 2]
# steps = [
#   "training", "steady", "first_step", "first_backward", "first_batch", "first_collective",
#   "barrier", "first_barrier", "all_gather_single", "first_all_gather_single", "forward",
# ]
# after = [
#   "First step done", "First barrier done", "First backward done",
#   "First reduce_scatter_single done", "First all_gather_single done", "",
# ]
# own_code = true
# calls = ['distributed\.\w+', 'barrier', 'all_gather', 'write_sample', 'fetch', 'forward']
# causes = ["rank-conditional-collective", "collective-mismatch", "uneven-rounds", "gloo-mismatch"]
# limit = 300
# ///
