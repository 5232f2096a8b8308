"""An asyncio server handles its requests in asyncio's own pool of threads (to_thread); each
handler asks the loop for a coroutine's result and waits for it, and that coroutine hands its
work to the same pool, whose threads are all handlers that wait.

The pool has two threads here. The event loop is idle and would go on at once.
"""

import argparse
import asyncio
import concurrent.futures
import time


def tokenize(text: str) -> list[int]:
    time.sleep(0.5)
    return list(text.encode())


async def fetch_tokens(text: str) -> list[int]:
    return await asyncio.to_thread(tokenize, text)


def handle(text: str, loop: asyncio.AbstractEventLoop) -> int:
    time.sleep(0.5)  # reads what its client sends
    tokens = asyncio.run_coroutine_threadsafe(fetch_tokens(text), loop).result()
    return sum(tokens)


async def serve(requests: int, threads: int) -> None:
    loop = asyncio.get_running_loop()
    loop.set_default_executor(concurrent.futures.ThreadPoolExecutor(threads, "handler"))
    print(await asyncio.to_thread(tokenize, "warm-up"), flush=True)
    texts = [f"request {number}" for number in range(requests)]
    print(await asyncio.gather(*(asyncio.to_thread(handle, text, loop) for text in texts)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=4)
    args = parser.parse_args()
    asyncio.run(serve(args.requests, 2))

# /// case
# command = "python train.py --requests 4"
# culprits = [[0]]
# steps = ["script", "arguments"]
# after = ["Args parsed", ""]
# own_code = true
# calls = ['handle', 'result', 'serve', 'to_thread', 'fetch_tokens', 'asyncio\.run']
# causes = ["pool-waits-for-itself", "deadlock", "thread-stuck"]
# says = ['handle']
# ///
