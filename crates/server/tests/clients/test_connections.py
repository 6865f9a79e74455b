"""Test of many open connections, with the server of `TABLA_URL`."""

import asyncio
import os
import resource
import urllib.parse

import pytest

ADDRESS = urllib.parse.urlsplit(os.environ.get("TABLA_URL", "http://127.0.0.1:8080"))
CONNECTIONS = 10_000
BODY = b'{"prompt": "Once upon a time", "max_tokens": 4}'
REQUEST = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY)


async def requests_among(count: int) -> list[bytes]:
    """Opens connections: a third sends nothing, a third a part of a header, a third a part of a body. Returns the
    first lines of the answers to requests on a new connection and on one of each kind."""
    parts = (b"", REQUEST[:40], REQUEST[:-10])
    opened = []
    try:
        for number in range(count):
            reader, writer = await asyncio.open_connection(ADDRESS.hostname, ADDRESS.port)
            writer.write(parts[number % len(parts)])
            opened.append((reader, writer))
        opened.append(await asyncio.open_connection(ADDRESS.hostname, ADDRESS.port))
        lines = []
        for (reader, writer), sent in zip(opened[-4:], (*parts[1:], parts[0], b""), strict=True):
            writer.write(REQUEST[len(sent) :])
            lines.append(await asyncio.wait_for(reader.readline(), 10))
        return lines
    finally:
        for _, writer in opened:
            writer.transport.abort()


def test_ten_thousand_connections_do_not_stop_the_server() -> None:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit[1] < CONNECTIONS + 200:
        pytest.skip(f"processes may open {limit[1]} files, which is too few")
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit[1], limit[1]))
    assert asyncio.run(requests_among(CONNECTIONS)) == [b"HTTP/1.1 200 OK\r\n"] * 4
