"""DeepSpeed: rank 1 of four was given an older configuration, which accumulates over two batches.

The others reduce their gradients at each batch; rank 1 goes on to its next forward, and one of them
meets that of another step. At the end they wait for it, which is done.
"""

import argparse

import deepspeed
import torch

SHAPE = {
    "train_micro_batch_size_per_gpu": 4,
    "optimizer": {"type": "Adam", "params": {"lr": 0.001, "torch_adam": True}},
    "zero_optimization": {"stage": 0},
}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=-1)
    deepspeed.add_config_arguments(parser)
    return parser.parse_args()


def main() -> None:
    args = arguments()
    torch.set_num_threads(1)
    deepspeed.init_distributed("gloo")
    rank = torch.distributed.get_rank()
    shape = SHAPE | {"gradient_accumulation_steps": 2 if rank == 1 else 1}
    module = torch.nn.Linear(16, 1)
    engine, *_ = deepspeed.initialize(
        args=args, model=module, model_parameters=module.parameters(), config=shape
    )
    for step in range(6):
        loss = engine(torch.randn(4, 16)).pow(2).mean()
        engine.backward(loss)
        engine.step()
        print(f"rank {rank} step {step}: {loss.item():.4f}", flush=True)
    deepspeed.comm.barrier()


if __name__ == "__main__":
    main()

# /// case
# command = "deepspeed --num_gpus 4 --master_port $PORT train.py"
# world = "built"
# culprits = [[1]]
# culprits_by_stacks = [[]]
# waiting = [0, 2, 3]
# steps = [
#   "training", "steady", "first_step", "first_backward", "first_batch", "first_collective",
#   "barrier", "first_barrier", "all_reduce", "first_all_reduce", "optimizer",
# ]
# after = [
#   "First step done", "First backward done", "First optimizer done", "First all_reduce done",
#   "DeepSpeed ready", "",
# ]
# own_code = true
# calls = ['barrier', 'all_reduce', 'step', 'backward']
# causes = [
#   "rank-conditional-collective", "collective-mismatch", "gloo-mismatch", "uneven-batches",
#   "uneven-rounds",
# ]
# limit = 300
# ///
