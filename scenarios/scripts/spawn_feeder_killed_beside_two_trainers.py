"""A feeder process fills a queue from which two spawned trainers take their batches in turns; a
fault in a native library ends the feeder after a few batches.

Both trainers wait in queue.get(), one to read, the other for the lock of the reader: they and the
parent still hold the pipe's writing end, so there is no end of file. The parent waits for the
trainers, and the feeder is its zombie.
"""

import ctypes

import torch
import torch.multiprocessing as mp

BATCHES = 12


def decode(number: int) -> torch.Tensor:
    if number == 5:
        ctypes.string_at(0)  # a picture that the decoder cannot read
    return torch.full((4, 8), float(number))


def feed(queue: "mp.Queue[list[float]]") -> None:
    for number in range(BATCHES):
        queue.put(decode(number).flatten().tolist())


def train(rank: int, queue: "mp.Queue[list[float]]") -> None:
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(BATCHES // 2):
        batch = torch.tensor(queue.get()).view(4, 8)
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
        print(f"trainer {rank} step {step}", flush=True)


def main() -> None:
    context = mp.get_context("spawn")
    queue = context.Queue()
    feeder = context.Process(target=feed, args=(queue,), name="feeder")
    feeder.start()
    mp.spawn(train, args=(queue,), nprocs=2)
    feeder.join()


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# culprits = [[-1]]
# waiting = [0, 1]
# steps = ["script", "first_batch", "training", "arguments"]
# after = ["torch imported", "First optimizer step", "First backward done", ""]
# own_code = true
# ends = true
# calls = ['feed', 'get', 'train', '^$']
# causes = ["child-died", "worker-dead", "dead-producer", "killed-from-outside"]
# says = ['SIGSEGV|signal 11']
# ///
