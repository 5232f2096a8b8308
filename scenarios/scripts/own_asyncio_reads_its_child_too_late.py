"""A controller of asyncio starts a converter for each shard with pipes, awaits the end of all, and
reads what they printed after that. One prints more than the pipe and the reader's buffer hold.

The converter waits in write(), the controller in its event loop for the converter's end: its reader
has stopped reading at its limit. The other converters are done.
"""

import asyncio
import sys

CONVERT = """
import sys
shard = int(sys.argv[1])
lines = 12000 if shard == 2 else 20
for line in range(lines):
    print(f"shard {shard} line {line}: a field that has no value, taken for zero")
"""


async def start(shard: int) -> asyncio.subprocess.Process:
    words = [sys.executable, "-c", CONVERT, str(shard)]
    return await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)


async def convert_all(shards: int) -> int:
    converters = [await start(shard) for shard in range(shards)]
    codes = await asyncio.gather(*(one.wait() for one in converters))
    print(f"all ended with {set(codes)}", flush=True)
    printed = 0
    for one in converters:
        assert one.stdout is not None
        printed += len(await one.stdout.read())
    return printed


if __name__ == "__main__":
    print(asyncio.run(convert_all(4)), flush=True)

# /// case
# command = "python train.py"
# culprits = [[0], [-1]]
# steps = ["script"]
# after = [""]
# own_code = true
# calls = ['convert_all', 'wait', 'asyncio\.run', 'run', 'select', 'write', 'print', '<module>']
# causes = ["pipe-unread", "deadlock"]
# says = ['pipe']
# ///
