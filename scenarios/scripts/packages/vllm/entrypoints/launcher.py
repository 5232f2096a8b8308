"""A stand-in of vllm/entrypoints/launcher.py: HTTP without uvicorn."""

import asyncio
import json
import logging

logger = logging.getLogger(__name__)
ENGINE_CALLS = ("init_weight_transfer_engine", "update_weights")


async def read_request(reader):
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    lengths = [line for line in head.lower().splitlines() if line.startswith("content-length:")]
    length = int(lengths[0].partition(":")[2]) if lengths else 0
    return head.split()[1].strip("/"), await reader.readexactly(length)


async def serve_http(engine_client, sock, stop_after):
    async def answer(reader, writer):
        path, body = await read_request(reader)
        said = b""
        if path in ENGINE_CALLS:
            await getattr(engine_client, path)(**json.loads(body))
        elif path == "get_world_size":
            said = json.dumps({"world_size": engine_client.world_size}).encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(said)}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + said)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, sock=sock)
    logger.info("Application startup complete.")
    async with server:
        if stop_after is None:
            await server.serve_forever()
        await asyncio.sleep(stop_after)
    engine_client.shutdown()
