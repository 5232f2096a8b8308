"""Each machine writes its checkpoint through an uploader that reads a named pipe."""

import io
import os

import torch
import torch.distributed as dist

torch.set_num_threads(1)


def save(model, path):
    content = io.BytesIO()
    torch.save(model.state_dict(), content)
    with open(path, "wb") as file:
        file.write(content.getvalue())


def main():
    dist.init_process_group("gloo")
    model = torch.nn.Linear(512, 512)
    for step in range(4):
        for one in model.parameters():
            dist.all_reduce(one.data)
        if step == 1:
            save(model, os.environ.get("CHECKPOINT", "/tmp/model.pt"))
            dist.barrier()
    dist.destroy_process_group()


main()
