"""`millrace graph` and what `millrace run` refuses before it starts anything."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest

from millrace.cli.apps import _replay
from millrace.engine.replay import Replay
from tests.command import millrace

SHOP = """\
import sys
import millrace as mr

app = mr.App("shop")
views = app.topic("views", "url string")


@app.stream(views, key="url")
def urls(p):
    return p


def loaded():
    return [name for name in ("pyspark", "confluent_kafka") if name in sys.modules]


import atexit
atexit.register(lambda: print("loaded:", loaded()))
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "millrace.toml").write_text('[run]\napp = "shop:app"\n')
    return tmp_path


def test_graph_draws_the_app_without_spark_and_without_a_server(shop: Path) -> None:
    done = millrace("graph", cwd=shop)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "app shop (shop.py:4)",
        "  topic   views  url string                             shop.py:5",
        "  stream  urls   views -> urls; key url; at least once  shop.py:8",
        "  topic   urls   columns as its stream gives them       shop.py:8",
        "loaded: []",
    ]
    assert not (shop / ".millrace").exists()


def test_graph_as_mermaid(shop: Path) -> None:
    done = millrace("graph", "shop:app", "--mermaid", cwd=shop)
    assert done.stdout.splitlines()[:-1] == [
        "flowchart LR",
        '  n0[("views")]',
        '  n1["urls"]',
        '  n2[("urls")]',
        "  n0 --> n1",
        '  n1 -->|"at least once"| n2',
    ]


@pytest.mark.parametrize("command", ["graph", "run"])
@pytest.mark.parametrize(
    ("reference", "code", "place"),
    [
        ("shopp:app", "MR-MODULE-MISSING", ""),
        ("shop:ap", "MR-APP-MISSING", ""),
        ("shop", "MR-APP-REFERENCE", ""),
        ("broken:app", "MR-SCHEMA-MISSING", "broken.py:5"),
        ("cyclic:app", "MR-CYCLE-FOUND", "cyclic.py:4"),
    ],
)
def test_what_is_wrong_is_one_sentence(shop: Path, command: str, reference: str, code: str, place: str) -> None:
    head = "import millrace as mr\napp = mr.App('x')\n"
    (shop / "broken.py").write_text(
        head + "t = app.topic('t', 'a int')\n\n@app.stream(t)\ndef a(p): ...\n@app.stream(a)\ndef b(p): ...\n"
    )
    (shop / "cyclic.py").write_text(head + "t = app.topic('t', 'a int')\n@app.stream(t, to=t)\ndef a(p): ...\n")
    done = millrace(command, reference, cwd=shop)
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {code} ")
    assert place in done.stderr
    assert done.stderr.count("\n") == 1


def test_run_tells_of_a_wrong_time_and_wrong_names_before_it_starts_anything(shop: Path) -> None:
    for arguments, words in (
        (("--for", "soon"), "MR-DURATION-INVALID"),
        (("--only", "url"), "has no flow named 'url'; did you mean 'urls'"),
        (("--fresh", "url"), "did you mean 'urls'"),
        (("--show", "view"), "did you mean 'views'"),
        (("--from", "earliest"), "MR-REPLAY-INVALID"),
        (("--until", "2026-01-01"), "MR-REPLAY-INVALID"),
        (("--from", "latest", "--into", "new"), "'latest' of --from is no time"),
        (("--from", "lake", "--until", "2026-01-01"), "leave `--until` out"),
        (("--into", "a b"), "MR-NAME-INVALID"),
        (("--into", "new", "--from", "2026-01-02", "--until", "2026-01-01"), "MR-REPLAY-INVALID"),
    ):
        done = millrace("run", *arguments, cwd=shop)
        assert done.returncode == 1
        assert words in done.stderr
        assert done.stderr.count("\n") == 1
    assert not (shop / ".millrace" / "kafka").exists()
    assert "130" in millrace("run", "--help", cwd=shop).stdout


def test_a_replay_from_the_lake_has_a_name_of_its_own() -> None:
    given = {"start": "lake", "until": None}
    assert _replay(Namespace(**given, into=None)) == Replay("lake", lake=True)
    assert _replay(Namespace(**given, into="again")) == Replay("again", lake=True)
    assert _replay(Namespace(start="checkpoint", until=None, into=None)) is None
