"""Iceberg's own REST catalog as a child process, its tables in a PostgreSQL and below a folder."""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pyspark

from millrace.local import jars, java

# Names of tables, and how a door answers whoever asks for them.
REFUSED = {"unwell": 500, "undone": 501, "unspaced": 404, "taken": 409}
_PROGRAM = Path(__file__).with_name("RestCatalog.java")


@contextlib.contextmanager
def rest_catalog(postgres: str, folder: Path) -> Iterator[str]:
    """Its address. What Iceberg needs beside its own jars, Spark has."""
    parts = urlsplit(postgres)
    place = f"jdbc:postgresql://{parts.hostname}:{parts.port}{parts.path}"
    spark = Path(pyspark.__file__).parent / "jars"
    classes = ":".join([*map(str, jars.paths("iceberg-rest")), f"{spark}/*"])
    given = [place, parts.username or "", parts.password or "", f"file://{folder}"]
    command = [str(java.find()), "-Xmx256m", "-cp", classes, str(_PROGRAM), *given]
    log = folder / "rest.log"
    with log.open("w") as words:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=words, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        told = next((line for line in process.stdout if line.startswith("port ")), "")
        assert told, log.read_text()
        yield f"http://127.0.0.1:{told.split()[1]}"
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(30)


@contextlib.contextmanager
def guarded(catalog: str, token: str) -> Iterator[str]:
    """The address of a door before a catalog, as a gateway is: who shows the token is let through. It says what it was
    shown to those whom it refuses, as some do; and to those who ask for one of `REFUSED`."""

    class Door(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            shown = self.headers.get("authorization")
            named = [word for word in REFUSED if word in self.path or word.encode() in body]
            if shown == f"Bearer {token}" and named:
                status = REFUSED[named[0]]
                told = json.dumps({"error": {"message": str(shown), "type": named[0], "code": status}}).encode()
            elif shown == f"Bearer {token}":
                status, told = passed(catalog + self.path, self.command, body, self.headers.get("content-type"))
            else:
                words = {"message": f"{shown} is not known", "type": "NotAuthorizedException", "code": 401}
                status, told = 401, json.dumps({"error": words}).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(told)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(told)

        do_GET = do_POST = do_DELETE = do_HEAD = handle_one  # noqa: N815 -- the library's names

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Door) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def passed(url: str, method: str, body: bytes, kind: str | None) -> tuple[int, bytes]:
    headers = {} if kind is None else {"content-type": kind}
    request = urllib.request.Request(url, body or None, headers, method=method)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()
