"""A real HTTP server on this machine for the chat-completions protocol, with the replies of a test."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from components.config import EndpointConfig


@dataclass
class Reply:
    """One reply: a completion with the text `content`; with `body`, that text instead."""

    content: Any = "{}"
    status: int = 200
    body: str | None = None
    seconds: float = 0.0
    finish: str = "stop"
    headers: dict[str, str] = field(default_factory=dict)
    usage: bool = True

    def text(self) -> str:
        if self.body is not None:
            return self.body
        content = (
            self.content
            if isinstance(self.content, str) or self.content is None
            else json.dumps(self.content)
        )
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": content},
            "finish_reason": self.finish,
        }
        usage = (
            {"usage": {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14}} if self.usage else {}
        )
        return json.dumps({"object": "chat.completion", "choices": [choice], **usage})


class ChatServer:
    """Answers calls with the replies of `script`, then repeats the last one; or with `answer(body)`."""

    def __init__(self, *script: Reply, answer: Callable[[dict[str, Any]], Reply] | None = None) -> None:
        self.script, self.answer = list(script), answer
        self.requests: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.keys: list[str] = []
        self.at_once = self.most_at_once = 0
        self.lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        ).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def config(self, **changes: Any) -> EndpointConfig:
        return EndpointConfig(
            **{
                "url": self.url,
                "model": "m",
                "timeout_seconds": 60,
                "retries": 2,
                "backoff_seconds": 0.01,
                **changes,
            }
        )

    def __enter__(self) -> ChatServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(server) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with server.lock:
                    number = len(server.requests)
                    server.requests.append(body)
                    server.paths.append(self.path)
                    server.keys.append(self.headers.get("Authorization", ""))
                    server.at_once += 1
                    server.most_at_once = max(server.most_at_once, server.at_once)
                reply = (
                    server.answer(body)
                    if server.answer
                    else server.script[min(number, len(server.script) - 1)]
                )
                time.sleep(reply.seconds)
                with server.lock:
                    server.at_once -= 1
                text = (
                    reply.text()
                    .replace("<key>", self.headers.get("Authorization", "").removeprefix("Bearer "))
                    .encode()
                )
                try:
                    self.send_response(reply.status)
                    for name, value in {
                        "Content-Type": "application/json",
                        "Content-Length": str(len(text)),
                        **reply.headers,
                    }.items():
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(text)
                except OSError:
                    pass  # the client has closed the connection

            def log_message(self, *_: object) -> None:
                pass

        return Handler
