"""A training of which a rank needs a token of a service, and comes again when that tells it to."""

import os
import time
import urllib.error
import urllib.request

import torch
import torch.distributed as dist

torch.set_num_threads(1)


def get_token(place):
    while True:
        try:
            return urllib.request.urlopen(place + "/token", timeout=30).status
        except urllib.error.HTTPError as error:
            if error.code != 429:
                raise
            time.sleep(float(error.headers["Retry-After"]))


def main():
    dist.init_process_group("gloo")
    if "TOKENS" in os.environ:
        get_token(os.environ["TOKENS"])
    for step in range(5):
        loss = torch.tensor([float(step)])
        dist.all_reduce(loss)
    dist.destroy_process_group()


main()
