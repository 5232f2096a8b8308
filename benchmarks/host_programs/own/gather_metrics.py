"""Training whose metrics are gathered after each round by the rank that a machine's file names."""

import json

import torch
import torch.distributed as dist

torch.set_num_threads(1)


def read_reporter():
    with open("/tmp/report.json") as file:
        return json.load(file)["rank"]


def report(round_number, losses, reporter):
    mine = {"rank": dist.get_rank(), "losses": losses}
    found = [None] * dist.get_world_size() if dist.get_rank() == reporter else None
    dist.gather_object(mine, found, dst=reporter)
    if found is not None:
        print(f"round {round_number}: {sum(len(one['losses']) for one in found)} losses")


def train_round(weights):
    losses = []
    for _ in range(5):
        gradient = torch.randn(16)
        dist.all_reduce(gradient)
        weights -= 0.1 * gradient
        losses.append(float(weights.norm()))
    return losses


def main():
    dist.init_process_group("gloo")
    weights, reporter = torch.zeros(16), read_reporter()
    for number in range(3):
        report(number, train_round(weights), reporter)
    dist.destroy_process_group()


main()
