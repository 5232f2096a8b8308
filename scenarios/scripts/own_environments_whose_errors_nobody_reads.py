"""asyncio: three environments, each a program that is asked and answers by a line; all three have
pipes for their errors, which nobody reads. The second warns at each step until its pipe is full.

It stands in a write to its stderr, and the main process awaits its answer in readline. The other
environments have answered and read their stdin.
"""

import asyncio
import json
import random
import sys


class Environment:
    def __init__(self, index: int) -> None:
        self.index = index
        self.process: asyncio.subprocess.Process

    async def start(self) -> None:
        pipe = asyncio.subprocess.PIPE
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, "environment.py", str(self.index), stdin=pipe, stdout=pipe, stderr=pipe
        )

    async def step(self, action: float) -> dict[str, float]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"action": action}).encode() + b"\n")
        await self.process.stdin.drain()
        return json.loads(await self.process.stdout.readline())


async def rollout(environments: list[Environment], steps: int) -> float:
    total = 0.0
    for _ in range(steps):
        answers = await asyncio.gather(*[one.step(random.random()) for one in environments])
        total += sum(answer["reward"] for answer in answers)
    return total


async def main() -> None:
    environments = [Environment(index) for index in range(3)]
    await asyncio.gather(*[one.start() for one in environments])
    for epoch in range(20):
        print(f"epoch {epoch}: {await rollout(environments, 200):.1f}", flush=True)


if __name__ == "__main__":
    asyncio.run(main())

# /// case
# command = "python train.py"
# culprits = [[0], [-1]]
# steps = ["script"]
# after = [""]
# own_code = true
# calls = ['asyncio\.run', 'step', 'rollout', 'write', 'warn', 'readline']
# causes = ["pipe-unread", "deadlock"]
# says = ['environment\.py', 'stderr|pipe']
# [files]
# "environment.py" = '''
# """An environment: a line in, a line out. For its author: python environment.py train"""
# import json
# import sys
#
#
# def warn(text):
#     print(f"environment {sys.argv[1]}: {text}", file=sys.stderr)
#
#
# for number, line in enumerate(sys.stdin):
#     action = json.loads(line)["action"]
#     if sys.argv[1] == "1":
#         warn(f"step {number}: action {action} is out of the range that was declared, and is cut")
#     print(json.dumps({"reward": action / 2}), flush=True)
# '''
# ///
