"""A receiver of webhooks as a process of its own: `python -m tests.sinks.receiver PORT FILE`.

What it takes it writes to FILE, a line a post, and flushes before it answers: it can be killed at any moment. What it
answers depends on the post: see `_status`.
"""

from __future__ import annotations

import http.server
import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

LARGEST_BYTES = 100_000
# It has taken the post, and the answer does not arrive.
LOST = 0


class Receiver(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    file: Path
    guard = threading.Lock()
    seen: dict[str, int]
    at_once, most_at_once = 0, 0

    def do_POST(self) -> None:
        with self.guard:
            type(self).at_once += 1
            type(self).most_at_once = max(self.at_once, self.most_at_once)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        post = json.loads(body)
        status = self._status(post, len(body))
        with self.guard:
            type(self).at_once -= 1
            line = {**post, "path": self.path, "status": status, "header": self.headers["Idempotency-Key"]}
            line |= {"authorization": self.headers["Authorization"], "at_once": self.most_at_once}
            with self.file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        if status == LOST:
            self.close_connection = True
            return
        said = b"no such customer" if status == 422 else b""
        self.send_response(status)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def _status(self, post: dict[str, Any], size: int) -> int:
        name = str(post["row"].get("name"))
        with self.guard:
            self.seen[post["id"]] = times = self.seen.get(post["id"], 0) + 1
        for word, status in (("fails ", 503), ("breaks ", 500), ("loses ", LOST)):
            if name.startswith(word) and times <= int(name.split()[1]):
                return status
        if name == "slow":
            time.sleep(0.02)
        return 413 if size > LARGEST_BYTES else {"odd": 422, "stranger": 401, "nobody": 404, "gone": 410}.get(name, 204)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 -- the standard library's
        """Quiet."""


def main() -> None:
    Receiver.file, Receiver.seen = Path(sys.argv[2]), {}
    http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Receiver).serve_forever()


if __name__ == "__main__":
    main()
