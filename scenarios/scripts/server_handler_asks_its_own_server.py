"""An aiohttp server whose handler asks another endpoint of the same server, by requests: the event
loop stands in that call and never comes to accept it.

The server waits for itself. A client of it, a process that warms it up, waits for its answer.
"""

import argparse
import multiprocessing
import time

import requests
from aiohttp import web


def tokenize(base: str, text: str) -> list[int]:
    return requests.post(f"{base}/tokenize", json={"text": text}).json()["tokens"]


async def handle_tokenize(request: web.Request) -> web.Response:
    text = (await request.json())["text"]
    return web.json_response({"tokens": [ord(letter) for letter in text]})


async def handle_generate(request: web.Request) -> web.Response:
    prompt = (await request.json())["prompt"]
    tokens = tokenize(request.app["base"], prompt)
    return web.json_response({"text": prompt + " ...", "usage": len(tokens)})


async def handle_health(request: web.Request) -> web.Response:
    return web.Response()


def warm_up(base: str) -> None:
    while True:
        try:
            requests.get(f"{base}/health", timeout=2).raise_for_status()
            break
        except requests.RequestException:
            time.sleep(0.2)
    print(requests.post(f"{base}/generate", json={"prompt": "once"}).json(), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    args = parser.parse_args()
    app = web.Application()
    app["base"] = f"http://127.0.0.1:{args.port}"
    app.router.add_get("/health", handle_health)
    app.router.add_post("/tokenize", handle_tokenize)
    app.router.add_post("/generate", handle_generate)
    spawn = multiprocessing.get_context("spawn")
    spawn.Process(target=warm_up, args=(app["base"],), daemon=True).start()
    web.run_app(app, host="127.0.0.1", port=args.port, print=None)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --port $PORT"
# needs = ["aiohttp"]
# culprits = [[0]]
# steps = ["script", "arguments", "http"]
# after = ["Args parsed", "Served", ""]
# own_code = true
# calls = ['post', 'tokenize', 'handle_generate', 'readinto', 'recv', 'request']
# causes = ["server-asks-itself", "deadlock", "event-loop", "server-process-stuck"]
# says = ['its own']
# ///
