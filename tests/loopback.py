"""A file server on the loopback interface that can misbehave in the ways real ones do."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Loopback:
    """What the server offers, how it fails, and what it was asked for: names and Range headers."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.files: dict[str, bytes] = {}
        self.asked: list[tuple[str, str | None]] = []
        self.ranges = True
        self.status: int | None = None
        #: Break the next response off after this many bytes.
        self.break_after: int | None = None
        #: Seconds between two pieces of a response.
        self.slowly = 0.0

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.port}/{name}"


def _handler(state: Loopback) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 10

        def do_GET(self) -> None:
            name, wanted = self.path.lstrip("/"), self.headers.get("Range")
            state.asked.append((name, wanted))
            content = state.files.get(name)
            if state.status or content is None:
                return self.reply(state.status or 404, b"sorry")
            if not (wanted and state.ranges):
                return self.reply(200, content)
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(content):
                return self.reply(416, b"", {"Content-Range": f"bytes */{len(content)}"})
            self.reply(
                206, content[start:], {"Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"}
            )

        def reply(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            for key, value in {
                "Content-Length": str(len(body)),
                "Connection": "close",
                **(headers or {}),
            }.items():
                self.send_header(key, value)
            self.end_headers()
            body = body[: state.break_after]
            piece = 8192 if state.slowly else max(len(body), 1)
            for start in range(0, len(body), piece):
                self.wfile.write(body[start : start + piece])
                time.sleep(state.slowly)
            state.break_after, self.close_connection = None, True

        def log_message(self, *args: Any) -> None:
            pass

    return Handler


@contextmanager
def serve() -> Iterator[Loopback]:
    """Run the server in a thread for the length of a ``with`` block."""
    state = Loopback(0)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(state))
    state.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


@contextmanager
def closed_port() -> Iterator[int]:
    """A port on which nobody listens: bound, so that no one else takes it, but never opened."""
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]
