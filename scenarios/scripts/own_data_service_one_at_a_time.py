"""A data service serves one rank after the other, each until it hangs up; rank 0 keeps its
connection for the next epoch and goes to the barrier, rank 1 waits for its first batch.

A ring: the service waits for a request of rank 0, rank 0 in the barrier for rank 1, and rank 1 for
the service, which has not accepted its connection. Whichever of the three is named, the ring is
to be said, or nobody blamed alone for being slow.
"""

import socket
import sys

import torch
import torch.distributed as dist


def connect(path: str) -> socket.socket:
    import time

    while True:
        one = socket.socket(socket.AF_UNIX)
        try:
            one.connect(path)
            return one
        except OSError:
            one.close()
            time.sleep(0.2)


def batches(service: socket.socket, count: int) -> torch.Tensor:
    total = torch.zeros(1)
    for _ in range(count):
        service.sendall(b"next\n")
        total += service.recv(64)[0]
    return total


def main() -> None:
    dist.init_process_group("gloo")
    dist.barrier()
    if dist.get_rank() == 1:
        import time

        time.sleep(1)  # rank 0 is served first
    service = connect(sys.argv[1])
    for _ in range(2):
        total = batches(service, 3)
        dist.barrier()
    print(total, flush=True)
    service.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "sh train.sh"
# culprits = [[1], [0, 1], [-1], [0], []]
# steps = ["process_group", "barrier", "training"]
# after = ["Process group ready", "Barrier passed"]
# own_code = true
# calls = ['recv', 'batches', 'barrier']
# causes = ["deadlock"]
# [files]
# "train.sh" = """
# python service.py data.sock &
# torchrun --standalone --nproc_per_node=2 train.py data.sock
# """
# "service.py" = '''
# """Batches, for whoever connects."""
# import socket
# import sys
#
# with socket.socket(socket.AF_UNIX) as listener:
#     listener.bind(sys.argv[1])
#     listener.listen(16)
#     while True:
#         reader, _ = listener.accept()
#         with reader:
#             while reader.recv(64):
#                 reader.sendall(b"x" * 64)
# '''
# ///
