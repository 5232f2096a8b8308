"""ZeRO-3: rank 2 of four writes the log, and gathers the head's weights alone for its histogram.

The others are in the barrier behind it.
"""

import argparse

import deepspeed
import torch

SHAPE = {
    "train_micro_batch_size_per_gpu": 4,
    "optimizer": {"type": "Adam", "params": {"lr": 0.001, "torch_adam": True}},
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
}
LOGS = 2  # rank


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=-1)
    deepspeed.add_config_arguments(parser)
    return parser.parse_args()


def log_histogram(step: int, head: torch.nn.Linear) -> None:
    with deepspeed.zero.GatheredParameters([head.weight]):
        counts = torch.histc(head.weight.detach().float(), bins=4).tolist()
    print(f"step {step}: head {counts}", flush=True)


def main() -> None:
    args = arguments()
    torch.set_num_threads(1)
    deepspeed.init_distributed("gloo")
    layers = [torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)]
    model = torch.nn.Sequential(*layers)
    engine, *_ = deepspeed.initialize(
        args=args, model=model, model_parameters=model.parameters(), config=SHAPE
    )
    for step in range(8):
        loss = engine(torch.randn(4, 32)).pow(2).mean()
        engine.backward(loss)
        engine.step()
        if step == 3:
            if engine.global_rank == LOGS:
                log_histogram(step, layers[-1])
            deepspeed.comm.barrier()  # all see the line before they go on


if __name__ == "__main__":
    main()

# /// case
# command = "deepspeed --num_gpus 4 --master_port $PORT train.py"
# world = "built"
# culprits = [[2]]
# culprits_by_stacks = [[]]
# waiting = [0, 1, 3]
# steps = [
#   "training", "steady", "first_step", "first_backward", "first_batch", "first_collective",
#   "barrier", "first_barrier", "all_gather_single", "first_all_gather_single",
# ]
# after = [
#   "First step done", "First barrier done", "First backward done",
#   "First reduce_scatter_single done", "",
# ]
# own_code = true
# calls = ['GatheredParameters', 'log_histogram', 'all_gather', 'barrier']
# causes = ["rank-conditional-collective", "collective-mismatch", "gloo-mismatch"]
# limit = 300
# ///
