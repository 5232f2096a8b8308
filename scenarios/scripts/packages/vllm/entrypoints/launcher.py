"""A stand-in of vllm/entrypoints/launcher.py: HTTP without uvicorn."""

import asyncio
import logging

logger = logging.getLogger(__name__)


async def serve_http(engine_client, sock, stop_after):
    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, sock=sock)
    logger.info("Application startup complete.")
    async with server:
        if stop_after is None:
            await server.serve_forever()
        await asyncio.sleep(stop_after)
    engine_client.shutdown()
