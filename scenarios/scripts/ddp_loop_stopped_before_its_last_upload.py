"""An event loop in a thread takes uploads by run_coroutine_threadsafe; in rank 2 of four an upload
failed, and the handler of errors stopped the loop.

The next upload is put on a loop that runs no more, and its future waits for ever.
"""

import asyncio
import threading
from typing import Any

import torch
import torch.distributed as dist


class Uploader:
    """Uploads beside the training."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.loop = asyncio.new_event_loop()
        self.loop.set_exception_handler(self._failed)
        threading.Thread(target=self.loop.run_forever, name="uploads", daemon=True).start()

    def _failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        print(f"rank {self.rank}: {context['message']}", flush=True)
        loop.stop()

    async def _put(self, name: str, data: bytes) -> int:
        await asyncio.sleep(0.05)
        return len(data)

    async def _touch(self) -> None:
        raise ConnectionResetError("the bucket went away")

    def ping(self) -> None:
        """Keep the connection warm, and wait for nothing."""

        def start() -> None:
            self._warm = self.loop.create_task(self._touch())
            self._warm.add_done_callback(lambda done: done.result())

        self.loop.call_soon_threadsafe(start)

    def put(self, name: str, tensor: torch.Tensor) -> int:
        future = asyncio.run_coroutine_threadsafe(
            self._put(name, tensor.numpy().tobytes()), self.loop
        )
        return future.result()


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    uploader = Uploader(rank)
    weight = torch.randn(64)
    for step in range(20):
        gradient = torch.randn(64)
        dist.all_reduce(gradient)
        weight -= 0.01 * gradient
        if step % 4 == 3:
            sent = uploader.put(f"step-{step}-rank-{rank}", weight)
            print(f"rank {rank} step {step}: {sent} bytes", flush=True)
        if step == 9 and rank == 2:
            uploader.ping()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py"
# culprits = [[2]]
# waiting = [0, 1, 3]
# steps = ["training", "steady", "process_group", "first_all_reduce", "all_reduce"]
# after = ["First all_reduce done", "Process group ready", ""]
# own_code = true
# calls = ['put', 'result', 'main']
# causes = ["dead-producer", "event-loop"]
# ///
