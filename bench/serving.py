"""`millrace serve` under load: rows pulled at an even rate, and changes pushed to a thousand WebSockets.

    python -m bench.serving [--rate 500] [--clients 1000] [--seconds 20] [--epochs 5]

Server, Kafka and PostgreSQL are processes of their own on this machine; so is what asks, which takes a good part of it.
- pull: one row by its key out of 10,000, `--rate` times a second, whether the last answer is there or not. A request's
  time is counted from when it was due.
- push: epochs of 10 rows of 100, `--epochs` a second, told to `--clients` WebSockets. The time is from the
  moment at which the epoch can be read (its mark is acknowledged by Kafka) to when a client has all of its message.
  An epoch has wide rows beside them, of which only one client more is told. It reads.
- the same again, and that client does not read. What it is told is more than the kernel takes for it, so that it piles
  up in the server, and the server drops it while the others are measured; its own counter has to say so.
Memory is the server's, resident: when it has started, when rows were pulled, with all WebSockets open at the end of the
changes, and the same with the one that does not read.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import re
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from millrace import config, local
from millrace.log import Log
from millrace.serve.sockets import TOO_SLOW
from tests.command import environ
from tests.serve.world import Written, shop

ROWS = 10_000
CHANGED = 10
CONNECTIONS = 32
WARM_S, LIMIT_S = 3.0, 120.0
# What one client alone is told. Of that the kernel takes 3 to 7 MB, and the server keeps 1 MB for it.
WIDE_BYTES = 16_000_000
# A row's key is in the index of the view's table, compressed, and has to fit there.
ROW_BYTES = 40_000
PING = 9
_EPOCH = re.compile(rb'"epoch": ?(\d+)')

SERVER = """
from millrace import config
from millrace.config import Listen
from millrace.serve.server import Server
from tests.serve.world import shop
server = Server(config.load(), shop().graph(), Listen("127.0.0.1", 0))
print(server.address, flush=True)
server.run()
"""


def row(number: int, version: int) -> dict[str, Any]:
    return {"region": f"region {number}", "orders": version, "total": number, "latest": None}


def changed(number: int, version: int) -> dict[str, Any]:
    return {"region": "north", "city": f"city {number % 100}", "n": version}


def wide(size_bytes: int, version: int) -> list[dict[str, Any]]:
    places = range(size_bytes // ROW_BYTES + 1)
    return [{"region": "wide", "city": f"{place:x<{ROW_BYTES}}", "n": version} for place in places]


@contextlib.contextmanager
def server(folder: Path) -> Iterator[tuple[str, int, psutil.Process]]:
    own = {"PYTHONPATH": str(Path(__file__).parents[1])}  # it is run in the project's folder, and imports `tests`
    with subprocess.Popen(
        [sys.executable, "-c", SERVER], cwd=folder, stdout=subprocess.PIPE, text=True, env=environ(own)
    ) as process:
        assert process.stdout is not None
        host, _, port = process.stdout.readline().strip().removeprefix("http://").rpartition(":")
        try:
            yield host, int(port), psutil.Process(process.pid)
        finally:
            process.terminate()


class Puller(asyncio.Protocol):
    """One connection, on which one request at a time is under way."""

    def __init__(self) -> None:
        self.free = asyncio.Event()
        self.answers = 0
        self._left, self._buffer = 0, b""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.free.set()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, body = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        length = int(re.search(rb"content-length: (\d+)", head)[1])  # type: ignore[index]
        if len(body) >= length:
            assert head.startswith(b"HTTP/1.1 200"), head
            self._buffer = body[length:]
            self.free.set()


async def pulled(host: str, port: int, rate: int, seconds: float) -> list[float]:
    loop = asyncio.get_running_loop()
    idle: asyncio.Queue[Puller] = asyncio.Queue()
    for _ in range(CONNECTIONS):
        _, made = await loop.create_connection(Puller, host, port)
        idle.put_nowait(made)
    times: list[float] = []

    async def ask(due: float, number: int) -> None:
        connection = await idle.get()
        connection.free.clear()
        path = f"/v1/views/revenue/region%20{number % ROWS}"
        connection.transport.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        await connection.free.wait()
        idle.put_nowait(connection)
        times.append(time.monotonic() - due)

    began = time.monotonic()
    tasks = []
    for number in range(int(rate * (seconds + WARM_S))):
        due = began + number / rate
        if (wait_s := due - time.monotonic()) > 0:
            await asyncio.sleep(wait_s)
        tasks.append(asyncio.create_task(ask(due, number * 7919)))
    await asyncio.gather(*tasks)
    return times[int(rate * WARM_S) :]


class Hearer(asyncio.Protocol):
    """A WebSocket that notes when each epoch was wholly there."""

    heard: dict[int, list[float]] = {}  # noqa: RUF012 -- of all of them
    ready = 0

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._shaken = False

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        transport.write(handshake("?region=north"))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self._shaken:
            if (end := self._buffer.find(b"\r\n\r\n")) < 0:
                return
            assert self._buffer.startswith(b"HTTP/1.1 101"), bytes(self._buffer[:100])
            del self._buffer[: end + 4]
            self._shaken = True
        while (frame := self._frame()) is not None:
            if frame.startswith(b'{"type":"changes"'):
                found = _EPOCH.search(frame)
                assert found is not None
                self._changed(int(found[1]))
            elif b'"last":true' in frame[:100]:
                Hearer.ready += 1

    def _changed(self, epoch: int) -> None:
        Hearer.heard.setdefault(epoch, []).append(time.monotonic())

    def _frame(self) -> bytes | None:
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        size, head = buffer[1] & 127, 2
        if size >= 126:
            wide = 2 if size == 126 else 8
            size, head = int.from_bytes(buffer[2 : 2 + wide], "big"), 2 + wide
        if len(buffer) < head + size:
            return None
        frame = bytes(buffer[head : head + size])
        if buffer[0] & 15 == PING:  # masked with zeros
            self._transport.write(bytes((0x8A, 0x80 | size, 0, 0, 0, 0)) + frame)
        del buffer[: head + size]
        return frame


class Listener(Hearer):
    """The one that is told of everything, and whose times do not count."""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        transport.write(handshake())

    def _changed(self, epoch: int) -> None:
        pass


async def told_all(clients: int) -> None:
    """Until so many have their snapshot."""
    deadline = time.monotonic() + LIMIT_S
    while Hearer.ready < clients:
        assert time.monotonic() < deadline, f"{Hearer.ready} of {clients} have their snapshot after {LIMIT_S:g} s"
        await asyncio.sleep(0.01)


def handshake(filters: str = "") -> bytes:
    head = f"GET /v1/views/cities/changes{filters} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
    rest = "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    return (head + rest).encode()


async def pushed(
    host: str,
    port: int,
    process: psutil.Process,
    view: Written,
    clients: int,
    epochs_per_s: float,
    seconds: float,
    stalled: bool,
) -> tuple[list[float], list[float], float]:
    """Milliseconds to each client, and of each epoch to the last of them; and the server's memory with all of them."""
    loop = asyncio.get_running_loop()
    Hearer.heard, Hearer.ready = {}, 0
    transports = []
    for number in range(clients):
        transport, _ = await loop.create_connection(Hearer, host, port)
        transports.append(transport)
        if number % 20 == 19:  # snapshots, a few at a time
            await told_all(number - 20)
    await told_all(clients)
    slow = socket.socket()
    if stalled:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        slow.connect((host, port))
        slow.sendall(handshake())
        assert (await asyncio.to_thread(slow.recv, 12)).startswith(b"HTTP/1.1 101")
    else:
        transport, _ = await loop.create_connection(Listener, host, port)
        transports.append(transport)
        await told_all(clients + 1)
    visible: dict[int, float] = {}
    epochs = int((seconds + WARM_S) * epochs_per_s)
    before = dropped(host, port)

    def write() -> None:
        began = time.monotonic()
        for number in range(epochs):
            time.sleep(max(began + number / epochs_per_s - time.monotonic(), 0))
            narrow = (changed(each, number) for each in range(number, number + CHANGED))
            view.write(*narrow, *wide(WIDE_BYTES // epochs, number))
            visible[view.epoch] = time.monotonic()

    await asyncio.to_thread(write)
    last = max(visible)
    deadline = time.monotonic() + LIMIT_S
    while len(Hearer.heard.get(last, ())) < clients and time.monotonic() < deadline:
        await asyncio.sleep(0.05)
    memory = rss_mb(process)
    gone = dropped(host, port) - before
    assert gone == int(stalled), f"{gone} clients were dropped as too slow, of {int(stalled)} that did not read"
    slow.close()
    for transport in transports:
        transport.close()
    measured = sorted(visible)[int(WARM_S * epochs_per_s) :]
    for epoch in measured:
        assert len(Hearer.heard.get(epoch, ())) == clients, f"epoch {epoch}: {len(Hearer.heard.get(epoch, ()))}"
    each = [(at - visible[epoch]) * 1000 for epoch in measured for at in Hearer.heard[epoch]]
    return each, [(max(Hearer.heard[epoch]) - visible[epoch]) * 1000 for epoch in measured], memory


def dropped(host: str, port: int) -> int:
    """Clients that were too slow, as the server counts them."""
    with urllib.request.urlopen(f"http://{host}:{port}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    own = [line for line in lines if line.startswith("millrace_serve_dropped_sockets_total") and str(TOO_SLOW) in line]
    return sum(int(line.rpartition(" ")[2]) for line in own)


def rss_mb(process: psutil.Process) -> float:
    return round(process.memory_info().rss / 1e6, 1)


def p(values: list[float], share: float) -> float:
    return round(sorted(values)[min(int(len(values) * share), len(values) - 1)], 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=int, default=500)
    parser.add_argument("--clients", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--epochs", type=float, default=5)
    args = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, args.clients * 2 + 1_000), most))
    with tempfile.TemporaryDirectory() as folder:
        settings = config.load(Path(folder))
        with local.held(settings, ("kafka", "postgres")):
            pulling, view = (Written(Log(settings), shop(), name).begin() for name in ("revenue", "cities"))
            pulling.write(*(row(number, 0) for number in range(ROWS)))
            view.write(*(changed(number, 0) for number in range(100)))
            pulling.applied()
            view.applied()
            with server(Path(folder)) as (host, port, process):
                memory = {"idle": rss_mb(process)}
                times = [each * 1000 for each in asyncio.run(pulled(host, port, args.rate, args.seconds))]
                memory["pulled"] = rss_mb(process)
                options = (host, port, process, view, args.clients, args.epochs, args.seconds)
                sides = {stalled: asyncio.run(pushed(*options, stalled)) for stalled in (False, True)}
            pulling.end()
            view.end()
            local.down(settings)
    each, whole, memory["clients"] = sides[False]
    slow, slow_whole, memory["stalled"] = sides[True]
    print(f"{'':34}{'p50':>8}{'p99':>8}  ms")
    for name, values in (
        (f"pull, {args.rate} requests/s", times),
        (f"push to {args.clients}, each client", each),
        ("… to the last client of an epoch", whole),
        ("… with one more that does not read", slow),
        ("… to the last client of an epoch", slow_whole),
    ):
        print(f"{name:34}{statistics.median(values):8.1f}{p(values, 0.99):8.1f}")
    told = ("idle", "pulled", "clients", "stalled")
    print(f"{'the server, MB: ' + ', '.join(told):34}{' '.join(f'{memory[each]:8.1f}' for each in told)}")
    ratios = {
        "pull": round(20 / p(times, 0.99), 2),
        "push": round(100 / p(each, 0.99), 2),
        "stalled": round(p(each, 0.99) / p(slow, 0.99), 2),
    }
    figures = {
        "pull_ms": {"p50": p(times, 0.5), "p99": p(times, 0.99)},
        "push_ms": {"p50": p(each, 0.5), "p99": p(each, 0.99)},
        "push_stalled_ms": {"p50": p(slow, 0.5), "p99": p(slow, 0.99)},
        "server_rss_mb": memory,
    }
    print(json.dumps({"bench": "serving", "ratios": ratios, "figures": figures, "peer": "aims: 20 ms, 100 ms, 10 %"}))


if __name__ == "__main__":
    main()
