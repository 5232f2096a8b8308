"""FastAPI under uvicorn: its plain functions run in a pool of two threads. Two requests wait in it
for their text, which an engine is to bring by a request of its own; that finds no thread.

The engine, a process of its own, waits for the answer of its request and holds the two texts.
"""

import multiprocessing
import os
import sys
import threading
import time
import urllib.request

import anyio.to_thread
import fastapi
import uvicorn

spawn = multiprocessing.get_context("spawn")
app = fastapi.FastAPI()
TEXTS: dict[int, str] = {}
READY = {number: threading.Event() for number in range(2)}


@app.on_event("startup")
async def set_threads() -> None:
    anyio.to_thread.current_default_thread_limiter().total_tokens = 2


@app.get("/generate/{number}")
def generate(number: int) -> str:
    READY[number].wait()
    return TEXTS[number]


@app.get("/result/{number}/{text}")
def take_result(number: int, text: str) -> str:
    TEXTS[number] = text
    READY[number].set()
    return "ok"


@app.get("/health")
async def health() -> str:
    return "ok"


def run_engine(port: int) -> None:
    base = f"http://127.0.0.1:{port}"
    while True:
        try:
            urllib.request.urlopen(f"{base}/health").close()
            break
        except OSError:
            time.sleep(0.3)
    time.sleep(3)  # decodes
    for number in range(2):
        urllib.request.urlopen(f"{base}/result/{number}/text").close()


def run_client(port: int, number: int) -> None:
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/generate/{number}") as answer:
                print(number, answer.read().decode(), flush=True)
                return
        except OSError:
            time.sleep(0.3)


def main(port: int) -> None:
    spawn.Process(target=run_engine, args=(port,), name="engine", daemon=True).start()
    for number in range(2):
        spawn.Process(target=run_client, args=(port, number), daemon=True).start()
    uvicorn.run(app, port=port, log_level="warning")


if __name__ == "__main__":
    os.environ.pop("no_proxy", None)
    main(int(sys.argv[1]))

# /// case
# command = "python train.py $PORT"
# needs = ["fastapi", "uvicorn"]
# culprits = [[0], [-1]]
# steps = ["script"]
# after = [""]
# own_code = true
# calls = ['run', 'generate', 'wait', 'uvicorn', 'urlopen']
# causes = [
#   "request-threads-full", "pool-waits-for-itself", "thread-stuck", "server-asks-itself",
#   "deadlock", "event-loop",
# ]
# says = ['generate|thread|127\.0\.0\.1:\d+']
# ///
