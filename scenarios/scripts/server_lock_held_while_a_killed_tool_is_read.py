"""An asyncio server keeps its lock while it reads a line of its tool; the tool was killed, and the
helper that it had started keeps the pipe open, so that no end of file comes.

Three requests stand behind the lock, and the loop is idle.
"""

import asyncio
import sys

TOOL = """
import os, signal, subprocess, sys
subprocess.Popen([sys.executable, "-c", "import threading; threading.Event().wait()"])
print("ready", flush=True)
sys.stdin.readline()
os.kill(os.getpid(), signal.SIGKILL)
"""


class Sandbox:
    def __init__(self) -> None:
        self.lock, self.tool = asyncio.Lock(), None

    async def start(self) -> None:
        pipe = asyncio.subprocess.PIPE
        self.tool = await asyncio.create_subprocess_exec(
            sys.executable, "-c", TOOL, stdin=pipe, stdout=pipe
        )
        print((await self.tool.stdout.readline()).decode(), flush=True)

    async def ask(self, request: int) -> bytes:
        async with self.lock:
            self.tool.stdin.write(b"%d\n" % request)
            return await self.tool.stdout.readline()


async def main() -> None:
    sandbox = Sandbox()
    await sandbox.start()
    print(await asyncio.gather(*[sandbox.ask(number) for number in range(4)]), flush=True)


if __name__ == "__main__":
    asyncio.run(main())

# /// case
# command = "python train.py"
# culprits = [[0], [-1]]
# steps = ["script"]
# after = [""]
# own_code = true
# calls = ['ask', 'main', 'readline', 'select', 'run']
# causes = ["child-died", "child-program", "nobody-sends", "event-loop"]
# says = ['ask|readline|pipe']
# ///
