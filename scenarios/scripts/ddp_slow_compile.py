"""The first rank compiles a large C++ extension, and the others wait for it."""

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.cpp_extension import load_inline

SOURCE = """
template <int N> struct Row {{ template <typename T> static T sum(T x)
    {{ return Row<N - 1>::sum(x * N) + Row<N - 2>::sum(x + N); }} }};
template <> struct Row<0> {{ template <typename T> static T sum(T x) {{ return x; }} }};
template <> struct Row<1> {{ template <typename T> static T sum(T x) {{ return x + 1; }} }};
{functions}
int one() {{ return 1; }}
"""
FUNCTION = "double part{number}(double x) {{ return Row<14>::sum(x + {number}); }}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--parts", type=int, default=40)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    functions = "\n".join(FUNCTION.format(number=number) for number in range(args.parts))
    build = Path("build")
    build.mkdir(exist_ok=True)
    fused = load_inline(
        "fused",
        SOURCE.format(functions=functions),
        functions=["one"],
        extra_cflags=["-O2"],
        build_directory=str(build),
    )
    model = DistributedDataParallel(torch.nn.Linear(16, fused.one()))
    for _ in range(8):
        model(torch.randn(4, 16)).sum().backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=2 train.py --parts $AMOUNT"
# outcome = "ok"
# limit = 400.0
# ///
