"""An HTTP server for scrapes: one page of text at `/metrics`.

Invariants: whatever goes wrong with one request, the next one is answered; to stop waits for none that is going on.
Leaves out: what the page says, and who may ask: it has no passwords, so it listens on loopback unless told otherwise.
"""

from __future__ import annotations

import logging
import os
import socket
import socketserver
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler

from litequeue.metrics.text import CONTENT_TYPE

PATH = "/metrics"
LOOPBACK = "127.0.0.1"
_LOOK_S = 0.2
"""How soon it notices that it is to stop."""
_PATIENCE_S = 30.0
"""How long a client may keep a thread waiting, over its request or over the answer."""
_BACKLOG = 128
"""Connections that wait to be accepted: those of one burst."""
_log = logging.getLogger("litequeue.metrics")


class MetricsServer(socketserver.ThreadingTCPServer):
    """Answers scrapes with what `text` returns; listens from the start on, on a free port where that is 0.

    Raises:
        OSError: the address cannot be listened on: it is in use, or not this machine's.
    """

    allow_reuse_address = os.name == "posix"  # elsewhere it would take another one's port
    daemon_threads = True
    block_on_close = False

    def __init__(self, text: Callable[[], str], port: int, host: str = LOOPBACK) -> None:
        self.text = text
        if ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__((host, port), _Scrape)
        self.socket.listen(_BACKLOG)

    @property
    def url(self) -> str:
        """Where the page is."""
        host, port = self.server_address[:2]
        name = host.decode() if isinstance(host, (bytes, bytearray)) else host
        return f"http://[{name}]:{port}{PATH}" if ":" in name else f"http://{name}:{port}{PATH}"

    def run(self) -> None:
        """Answer until `shutdown` is called from another thread."""
        try:
            self.serve_forever(_LOOK_S)
        finally:
            self.server_close()

    def handle_error(self, _request: object, client_address: object) -> None:
        """Note that an answer could not be given; the client has most often just gone."""
        _log.debug("the scrape from %s was not answered", client_address, exc_info=True)


class _Scrape(BaseHTTPRequestHandler):
    """One request."""

    server: MetricsServer
    server_version = "litequeue"
    sys_version = ""
    timeout = _PATIENCE_S

    def do_GET(self) -> None:
        """Answer with the page."""
        path = self.path.partition("?")[0]
        if path == PATH:
            try:
                self._answer(HTTPStatus.OK, self.server.text(), CONTENT_TYPE)
            except OSError:
                raise
            except Exception as exc:  # noqa: BLE001 - whatever it is, the next scrape is answered
                _log.exception("the metrics could not be told")
                self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, f"{type(exc).__name__}: {exc}\n")
        elif path == "/":
            self._answer(HTTPStatus.OK, f"The metrics are at {PATH}\n")
        else:
            self._answer(HTTPStatus.NOT_FOUND, f"There is nothing here; the metrics are at {PATH}\n")

    def do_HEAD(self) -> None:
        """Answer without the page."""
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the method it stands for
        """Log a request, for those who look closely."""
        _log.debug(format, *args)

    def _answer(self, status: HTTPStatus, text: str, content_type: str = "text/plain; charset=utf-8") -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
