"""Ray: an async scheduler keeps its lock while it awaits an async worker's start; that start
asks the scheduler for a port, for which that wants the same lock.

Both loops are idle, and both actors let many calls in at a time; the driver waits for one.
"""

import asyncio

import ray


@ray.remote
class Worker:
    def __init__(self, scheduler: ray.actor.ActorHandle) -> None:
        self.scheduler, self.port = scheduler, 0

    async def start(self) -> int:
        self.port = await self.scheduler.take_port.remote()
        return self.port


@ray.remote
class Scheduler:
    def __init__(self) -> None:
        self.lock, self.ports, self.workers = asyncio.Lock(), [7001, 7002], []

    async def take_port(self) -> int:
        async with self.lock:
            return self.ports.pop()

    async def scale(self, me: ray.actor.ActorHandle, count: int) -> int:
        for _ in range(count):
            async with self.lock:
                worker = Worker.remote(me)
                await worker.start.remote()
                self.workers.append(worker)
        return len(self.workers)


if __name__ == "__main__":
    ray.init(num_cpus=4, include_dashboard=False)
    scheduler = Scheduler.remote()
    print(ray.get(scheduler.scale.remote(scheduler, 2)), flush=True)

# /// case
# command = "python train.py"
# needs = ["ray"]
# culprits = [[0], [-1]]
# steps = ["ray_get", "script"]
# after = ["Answer of Ray there", "Ray started", "Actor asked for", ""]
# own_code = true
# calls = ['ray\.get', 'scale', 'start', 'take_port']
# causes = ["ray-task", "deadlock", "ray-asks-itself"]
# says = ['Scheduler|Worker|scale|start']
# ///
