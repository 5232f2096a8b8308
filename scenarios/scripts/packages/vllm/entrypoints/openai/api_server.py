"""A stand-in of vllm/entrypoints/openai/api_server.py."""

import argparse
import asyncio
import logging
import socket
import sys
from contextlib import asynccontextmanager

from vllm.entrypoints.launcher import serve_http
from vllm.entrypoints.llm import make_config


def create_server_socket(addr):
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(addr)
    return sock


@asynccontextmanager
async def build_async_engine_client(args):
    from vllm.v1.engine.async_llm import AsyncLLM

    yield AsyncLLM.from_vllm_config(make_config(args.model, args.tensor_parallel_size))


async def run_server(args):
    sock = create_server_socket(("127.0.0.1", args.port))
    await run_server_worker(sock, args)


async def run_server_worker(sock, args):
    async with build_async_engine_client(args) as engine_client:
        await serve_http(engine_client, sock, args.stop_after)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("-tp", "--tensor-parallel-size", type=int, default=1)
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--stop-after", type=float, help="of the stand-in: seconds")
    args = parser.parse_args()
    logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
    asyncio.run(run_server(args))


if __name__ == "__main__":
    main()
