"""A stand-in of vllm/entrypoints/openai/api_server.py."""

import argparse
import asyncio
import logging
import socket
import sys
from contextlib import asynccontextmanager

from vllm.entrypoints.launcher import serve_http
from vllm.entrypoints.llm import make_config
from vllm.utils import remote_code


def create_server_socket(addr):
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(addr)
    return sock


@asynccontextmanager
async def build_async_engine_client(args):
    from vllm.v1.engine.async_llm import AsyncLLM

    yield AsyncLLM.from_vllm_config(
        make_config(args.model, args.tensor_parallel_size, args.enforce_eager)
    )


async def run_server(args):
    sock = create_server_socket(("127.0.0.1", args.port))
    await run_server_worker(sock, args)


async def run_server_worker(sock, args):
    async with build_async_engine_client(args) as engine_client:
        remote_code(args.model, "chat_template")
        await serve_http(engine_client, sock, args.stop_after)


def add_arguments(parser):
    parser.add_argument("-tp", "--tensor-parallel-size", type=int, default=1)
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--stop-after", type=float, help="of the stand-in: seconds")
    parser.add_argument("--enforce-eager", action=argparse.BooleanOptionalAction, default=False)
    # What a model of nothing has no use for.
    parser.add_argument("--disable-custom-all-reduce", action=argparse.BooleanOptionalAction)
    parser.add_argument("--enable-prefix-caching", action=argparse.BooleanOptionalAction)
    parser.add_argument("--enable-chunked-prefill", action=argparse.BooleanOptionalAction)
    parser.add_argument("--distributed-executor-backend", choices=("ray", "mp", "uni"))
    parser.add_argument("--attention-backend")
    parser.add_argument("--dtype", default="auto")


def serve(args):
    logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
    asyncio.run(run_server(args))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    add_arguments(parser)
    serve(parser.parse_args())


if __name__ == "__main__":
    main()
