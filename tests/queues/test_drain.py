"""A queue drained into a topic: every message once or more, whoever is killed; repeats are known by their ids."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import psutil
import pytest

from millrace import config, local
from millrace.config import Secret, Settings
from millrace.errors import (
    ExtraMissing,
    QueueRefused,
    QueueServerUnknown,
    QueueServerUnreachable,
    QueueUnknown,
    QueueUrlUnfit,
    RecordTooLarge,
    ServerError,
    TopicUnknown,
)
from millrace.log import Log, Record
from millrace.queues.drain import ID, NAME, REDELIVERED, Drain
from tests import rabbit
from tests.command import environ, millrace, start, until
from tests.rabbit import Put
from tests.rotation import today

pytestmark = pytest.mark.server

_numbers = count(1)
CANARY = "canary-5d20c7"


@dataclass(frozen=True)
class Project:
    """A folder with a millrace.toml on the shared Kafka and RabbitMQ; a queue and a topic of its own."""

    settings: Settings
    url: str
    queue: str
    topic: str = "jobs"

    @property
    def log(self) -> Log:
        return Log(self.settings)

    def drain(self, *options: str) -> str:
        """Runs the command until the queue is empty, and gives what it said."""
        args = ("queue", "drain", self.queue, self.topic, "--until-empty", *options)
        done = millrace(*args, cwd=self.settings.folder)
        assert done.returncode == 0, done.stderr
        return done.stderr

    @property
    def written(self) -> int:
        """How many records there are; none while a broker that was just started has no leader yet."""
        with contextlib.suppress(ServerError):
            return sum(last for _, last in self.log.topics.offsets(self.topic).values())
        return 0

    def records(self) -> list[Record]:
        return list(self.log.read(self.topic))


@pytest.fixture
def project(settings: Settings, bootstrap: str, rabbitmq: str, folder: Path) -> Project:
    number = next(_numbers)
    url = local.address(settings, "rabbitmq")
    (folder / "url").write_text(url)
    (folder / "millrace.toml").write_text(
        f'prefix = "queues{number}"\n[kafka]\nbootstrap = "{bootstrap}"\n[queues.rabbitmq]\nurl = "file:url"\n'
    )
    own = config.load(folder)
    found = Project(own, url, f"jobs{number}")
    found.log.topics.create("jobs", partitions=2)
    rabbit.declare(url, found.queue, {"x-queue-type": "quorum"} if number % 2 else None)
    return found


def header(record: Record, name: str) -> str | None:
    return next((value.decode() for each, value in record.headers if each == name and value is not None), None)


def generated(seed: int, messages: int) -> list[Put]:
    """Messages of all kinds: with and without ids and headers, some of them no JSON."""
    chance = random.Random(seed)
    found = []
    for number in range(messages):
        body = {"n": number, "who": chance.choice(["ann", "bob", "€ – 木"]), "pad": "x" * chance.randrange(200)}
        text = chance.choice([b"not JSON", b"\xff\xfe", b"", b'{"n": NaN}', b'{"who": null}'])
        odd = chance.random() < 0.05
        kinds: dict[str, Any] = {"text": "a", "number": 7, "nested": {"deep": [1, True]}, "none": None, "at": MOMENT}
        headers = {name: kinds[name] for name in kinds if chance.random() < 0.3}
        identity = f"{seed}-{number}" if chance.random() < 0.8 else None
        found.append(Put(text if odd else json.dumps(body).encode(), identity, headers))
    return found


MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


def test_generated_messages_arrive_whole_and_what_is_no_json_is_a_dead_letter(project: Project) -> None:
    messages = generated(today(), 500)
    rabbit.put(project.url, project.queue, messages)
    said = project.drain("--key", "who", "--prefetch", "64")

    good = [message for message in messages if message.body.startswith(b'{"n": ') and b"NaN" not in message.body]
    records = project.records()
    assert Counter(record.value for record in records) == Counter(message.body for message in good)
    by_body = {message.body: message for message in good}
    for record in records:
        message = by_body[record.value or b""]
        assert record.key == json.loads(message.body)["who"].encode()
        assert header(record, ID) == message.id
        assert header(record, NAME) == project.queue
        assert header(record, REDELIVERED) is None
        if message.headers and "nested" in message.headers:
            assert json.loads(header(record, "nested") or "") == {"deep": [1, True]}
        if message.headers and "at" in message.headers:
            assert MOMENT.replace(tzinfo=None).isoformat() in (header(record, "at") or "")
    for who in ("ann", "bob", "€ – 木"):  # in their order
        numbers = [record.json()["n"] for record in records if record.json()["who"] == who]
        assert numbers == sorted(numbers)

    dead = list(project.log.dead.list(project.topic))
    bad = [message for message in messages if message not in good]
    assert Counter(letter.record.value for letter in dead) == Counter(message.body for message in bad)
    assert {header(letter.record, ID) for letter in dead} == {message.id for message in bad}
    reasons = " ".join(letter.reason for letter in dead)
    assert "not JSON" in reasons
    assert f"{len(good)} messages written" in said
    assert f"{len(bad)} could not be read: `millrace deadletter list jobs`" in said
    assert rabbit.count(project.url, project.queue) == 0


def test_raw_messages_and_many_drains_at_a_time(project: Project) -> None:
    messages = [Put(bytes([number % 256]) * 9, f"m{number}") for number in range(3_000)]
    rabbit.put(project.url, project.queue, messages)
    drains = [Drain(project.settings, project.queue, project.topic, raw=True, prefetch=10) for _ in range(3)]
    threads = [threading.Thread(target=drain.run, kwargs={"until_empty": True}) for drain in drains]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    found = Counter(header(record, ID) for record in project.records())
    assert set(found) == {message.id for message in messages}
    assert sum(drain.drained.written for drain in drains) == sum(found.values())


def test_the_id_as_a_field_for_flows_that_drop_repeats(project: Project) -> None:
    bodies = [b' { "n": 1.50000000000000000001}', b"{}", b'{"id": 7}', b"[1]", b'{"n": 2}']
    messages = [Put(body, f'"{number}"') for number, body in enumerate(bodies)]
    rabbit.put(project.url, project.queue, [*messages[:-1], Put(bodies[-1])])
    drain = drained(project, id="id", prefetch=2)
    found = {record.value for record in project.records()}
    assert found == {b'{"id":"\\"0\\"", "n": 1.50000000000000000001}', b'{"id":"\\"1\\""}'}
    assert [json.loads(value or b"")["id"] for value in sorted(found)] == ['"0"', '"1"']
    reasons = [letter.reason for letter in project.log.dead.list(project.topic)]
    assert [reason.partition(":")[0] for reason in reasons] == ["it has no room for its id"] * 2 + [
        "it has no message id"
    ]
    assert drain.drained.dead == 3


def test_ids_that_are_no_texts_stay_apart(project: Project) -> None:
    identities = [b"\xff\xfd", b"\xff\xfe", "ä".encode()]
    rabbit.put(project.url, project.queue, [Put(b'{"n": %d}' % n, each) for n, each in enumerate(identities)])
    drained(project, id="id")
    records, told = project.records(), ["\\xff\\xfd", "\\xff\\xfe", "ä"]
    assert sorted(record.json()["id"] for record in records) == told
    assert sorted(header(record, ID) or "" for record in records) == told


def all_there(project: Project, wanted: int) -> list[Record]:
    """The oracle: every message is in the topic, and what is there more often is marked and has the same id."""
    records = project.records()
    bodies: dict[str, set[bytes | None]] = {}
    marks: dict[str, list[bool]] = {}
    for record in records:
        identity = header(record, ID)
        assert identity is not None
        bodies.setdefault(identity, set()).add(record.value)
        marks.setdefault(identity, []).append(header(record, REDELIVERED) is not None)
    assert set(bodies) == {f"m{number}" for number in range(wanted)}, "lost"
    assert all(len(each) == 1 for each in bodies.values()), "an id for two messages"
    assert all(sum(not mark for mark in each) <= 1 for each in marks.values()), "a repeat that is not marked"
    return records


def put_numbers(project: Project, numbers: range) -> None:
    rabbit.put(project.url, project.queue, [Put(json.dumps({"n": n}).encode(), f"m{n}") for n in numbers])


def killed(project: Project, manner: str) -> None:
    command = [sys.executable, "-m", "tests.queues.dying", manner, str(project.settings.folder), project.queue, "jobs"]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, env=environ(), timeout=120, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr


def test_killed_between_the_write_and_the_acknowledgement(project: Project) -> None:
    put_numbers(project, range(300))
    killed(project, "right")
    written = len(project.records())
    assert 0 < written <= 50, "it died after its first batch was written"
    killed(project, "right")
    project.drain()
    records = all_there(project, 300)
    assert len(records) > 300, "what was written and not acknowledged came again"
    assert rabbit.count(project.url, project.queue) == 0


def test_the_oracle_sees_one_that_acknowledges_first(project: Project) -> None:
    put_numbers(project, range(300))
    killed(project, "hasty")
    project.drain()
    with pytest.raises(AssertionError, match="lost"):
        all_there(project, 300)


def started_again(settings: Settings, server: str) -> None:
    """Twice if need be: every test behind this one needs it, and a machine with too much to do may take its time."""
    try:
        local.up(settings, (server,))
    except ServerError:
        local.up(settings, (server,))


@pytest.mark.turn(0, 2)
def test_kills_of_the_drain_and_of_both_servers_at_any_moment(project: Project, settings: Settings) -> None:
    chance = random.Random(today())
    total = 8_000
    put_numbers(project, range(total))
    args = ("queue", "drain", project.queue, project.topic, "--prefetch", "20")

    def some_more() -> None:
        wanted = project.written + 300
        until(lambda: project.written > wanted, "some more records")

    for _ in range(2):
        with start(*args, cwd=project.settings.folder) as command:
            some_more()
            threading.Event().wait(chance.random() / 10)  # the moment is what is random
            command.send_signal(signal.SIGKILL)
            command.wait()
    with start(*args, cwd=project.settings.folder) as command:
        for server in ("kafka", "rabbitmq"):
            some_more()
            (pid,) = (row.pid for row in local.status(settings) if row.server == server)
            psutil.Process(pid).kill()
            started_again(settings, server)
        until(lambda: project.written >= total, "as many records as messages")
        until(lambda: rabbit.count(project.url, project.queue) == 0, "an empty queue")
        command.send_signal(signal.SIGTERM)
        assert command.wait(30) == 0
        said = command.stdout.read() if command.stdout else ""
    assert "MR-QUEUE-SERVER-UNREACHABLE" in said
    assert "tried again in 1 s" in said
    project.drain()  # what it had in hand when it was asked to end
    all_there(project, total)


def drained(project: Project, **options: Any) -> Drain:
    given = {"settings": project.settings, "queue": project.queue, "topic": project.topic, **options}
    drain = Drain(**given)
    drain.run(until_empty=True)
    return drain


@pytest.fixture
def closed_port() -> Iterator[int]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        yield int(free.getsockname()[1])


def at(settings: Settings, url: str) -> Settings:
    return replace(settings, queues={"rabbitmq": Secret("queues.rabbitmq.url", url)})


def test_what_goes_wrong_is_one_sentence_and_nothing_is_taken(project: Project, closed_port: int) -> None:
    own, port = project.settings, urlsplit(project.url).port
    put_numbers(project, range(3))

    with pytest.raises(QueueServerUnreachable, match=r"127.0.0.1:\d+ does not answer \(Connection refused\)"):
        drained(project, settings=at(own, f"amqp://guest:{CANARY}@127.0.0.1:{closed_port}/"))
    with pytest.raises(QueueServerUnreachable, match="ACCESS_REFUSED") as raised:
        drained(project, settings=at(own, f"amqp://guest:{CANARY}@127.0.0.1:{port}/"))
    assert CANARY not in str(raised.value)
    with pytest.raises(QueueServerUnreachable, match="vhost other not found"):
        drained(project, settings=at(own, f"amqp://guest:guest@127.0.0.1:{port}/other"))
    for url in (f"http://{CANARY}", f"amqp://guest:{CANARY}@host:port/", f"amqp://{CANARY}@127.0.0.1:{port}"):
        with pytest.raises(QueueUrlUnfit, match=r"amqp://user:password@host:5672/virtual-host") as unfit:
            drained(project, settings=at(own, url))
        assert CANARY not in str(unfit.value)
    with pytest.raises(QueueServerUnknown, match="did you mean 'rabbitmq'"):
        drained(project, server="rabbitm")
    with pytest.raises(QueueUnknown, match="there is no queue 'nobody'"):
        drained(project, queue="nobody")
    with pytest.raises(TopicUnknown):
        drained(project, topic="nothing")

    project.log.topics.create("small", config={"max.message.bytes": "2000"})
    rabbit.put(project.url, project.queue, [Put(json.dumps({"pad": "x" * 3_000}).encode(), "large")])
    with pytest.raises(RecordTooLarge, match=r"millrace topic alter small --config max\.message\.bytes"):
        drained(project, topic="small")
    until(lambda: rabbit.count(project.url, project.queue) == 4, "all of them in the queue again")
    project.log.topics.alter("small", config={"max.message.bytes": "9000"})
    assert drained(project, topic="small").drained.written == 4


@pytest.mark.parametrize("kind", ["quorum", "classic"])
def test_a_queue_of_one_active_consumer_is_drained_to_its_end(project: Project, kind: str) -> None:
    queue = f"{project.queue}-{kind}"
    rabbit.declare(project.url, queue, {"x-queue-type": kind, "x-single-active-consumer": True})
    rabbit.put(project.url, queue, [Put(b"{}", f"m{number}") for number in range(30)])
    assert drained(project, queue=queue).drained.written == 30


def test_somebody_elses_queue_and_a_queue_that_is_deleted(project: Project) -> None:
    with rabbit.channel(project.url) as opened:
        opened.queue_declare("own", exclusive=True)
        with pytest.raises(QueueRefused, match="RESOURCE_LOCKED"):
            drained(project, queue="own")
    heard: list[str] = []
    drain = Drain(project.settings, project.queue, project.topic)
    failed: list[Exception] = []

    def draining() -> None:
        try:
            drain.run(say=heard.append)
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=draining)
    thread.start()
    put_numbers(project, range(1))
    until(lambda: drain.drained.written == 1, "the first message")
    with rabbit.channel(project.url) as opened:
        opened.queue_delete(project.queue)
    thread.join(60)
    assert isinstance(failed[0], QueueUnknown)
    assert "ended the reading" in heard[0]


def test_the_command_refuses_what_it_cannot_do(project: Project) -> None:
    args = ("queue", "drain", project.queue, project.topic)
    done = millrace(*args, "--prefetch", "20000", cwd=project.settings.folder)
    assert (done.returncode, "MR-COUNT-INVALID" in done.stderr) == (1, True)
    done = millrace(*args, "--raw", "--id", "id", cwd=project.settings.folder)
    assert (done.returncode, "MR-USAGE-INVALID" in done.stderr) == (1, True)
    (project.settings.folder / "url").write_text(project.url.replace("guest@", f"{quote(CANARY)}@"))
    done = millrace(*args, cwd=project.settings.folder)
    assert done.returncode == 2
    assert "MR-QUEUE-SERVER-UNREACHABLE" in done.stderr
    assert CANARY not in done.stderr + done.stdout
    assert len(done.stderr.strip().splitlines()) == 2  # that it drains, and the error


def test_the_library_is_missing(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pika", None)
    with pytest.raises(ExtraMissing, match=r"millrace\[rabbitmq\]"):
        drained(project)
