"""What S3 says of objects that came in parts, page by page, and what is made of an answer that is none."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from urllib.parse import parse_qs, urlsplit

import pytest

from millrace.errors import LakeStoreUnreachable
from millrace.lakehouse import uploads
from millrace.lakehouse.bucket import Bucket, Store
from millrace.lakehouse.uploads import Upload, Uploads

Answer = tuple[int, str]
AT = "<Initiated>2026-01-01T12:00:00.000Z</Initiated>"


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setattr(uploads, "_FIRST_WAIT_S", 0.0)


@contextlib.contextmanager
def s3(answer: Callable[[dict[str, str]], Answer | None], asked: list[str]) -> Iterator[Uploads]:
    """Answers what is asked by the words of the query; None hangs up."""

    class Door(BaseHTTPRequestHandler):
        def _any(self) -> None:
            asked.append(f"{self.command} {self.path}")
            words = {name: each for name, (each,) in parse_qs(urlsplit(self.path).query).items()}
            if (told := answer(words)) is None:
                return
            self.send_response(told[0])
            self.end_headers()
            self.wfile.write(told[1].encode())

        do_GET = do_DELETE = _any  # noqa: N815 -- the library's names

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Door) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            store = Store(f"http://127.0.0.1:{server.server_port}", "us-east-1")
            yield Uploads(Bucket("s3://shop/lake", store, object()))
        finally:
            server.shutdown()
            thread.join()


def page(*keys: str, more: str = "") -> Answer:
    held = "".join(f"<Upload><Key>{key}</Key><UploadId>{key}-1</UploadId>{AT}</Upload>" for key in keys)
    return 200, f"<L xmlns='s3'>{more}{held}</L>"


MORE = "<IsTruncated>true</IsTruncated>"


def test_every_page_is_read_also_where_s3_does_not_say_where_the_next_begins() -> None:
    pages = {
        "": page("lake/a", "other", more=MORE),  # which says nothing: behind the last that it has
        "other": page(
            "lake/b", more=f"{MORE}<NextKeyMarker>x</NextKeyMarker><NextUploadIdMarker>y</NextUploadIdMarker>"
        ),
        "x": page("lake/c"),
    }
    asked: list[str] = []
    with s3(lambda words: pages[words.get("key-marker", "")], asked) as found:
        assert [each.path for each in found.begun()] == ["a", "b", "c"]
    assert "upload-id-marker=other-1" in asked[1]
    assert "upload-id-marker=y" in asked[2]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (page(more=MORE), "there are more, and not where they begin"),
        (page(more=f"{MORE}<NextKeyMarker>x</NextKeyMarker>"), "there are more, and not where they begin"),
        ((200, "<L><Upload><Key>lake/a</Key><UploadId>1</UploadId></Upload></L>"), "when lake/a was begun: nothing"),
        ((200, f"<L><Upload><Key>lake/a</Key>{AT.replace('2026', 'soon')}</Upload></L>"), "lake/a was begun: soon"),
        ((200, "<L>"), "the answer is not S3's"),
        ((400, ""), "s3 answered 400"),
        ((503, ""), "s3 answered 503"),
        (None, "RemoteDisconnected"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_an_answer_that_is_none_is_told_in_a_sentence(answer: Answer | None, reason: str) -> None:
    with s3(lambda _: answer, []) as found, pytest.raises(LakeStoreUnreachable, match=reason):
        found.begun()


@pytest.mark.parametrize("once", [(429, ""), (500, ""), (503, "<Error/>"), None], ids=str)
def test_a_server_that_is_too_busy_is_asked_again(once: Answer | None) -> None:
    asked: list[str] = []
    with s3(lambda _: once if len(asked) % 2 else page("lake/a"), asked) as found:
        (upload,) = found.begun()
        found.abort(upload)
    assert [each.partition("?")[0] for each in asked] == ["GET /shop/"] * 2 + ["DELETE /shop/lake/a"] * 2


@pytest.mark.parametrize(("listens", "reason"), [(False, "ConnectionRefusedError"), (True, "TimeoutError")])
def test_a_server_that_is_not_there_or_silent_is_asked_again(
    listens: bool, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(uploads, "time", SimpleNamespace(sleep=pauses.append))
    monkeypatch.setattr(uploads, "_ANSWER_S", 0.05)
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        if listens:
            door.listen()
        store = Store(f"http://127.0.0.1:{door.getsockname()[1]}", "us-east-1")
        with pytest.raises(LakeStoreUnreachable, match=reason):
            Uploads(Bucket("s3://shop/lake", store, object())).begun()
    assert len(pauses) == 4


def test_an_object_is_removed_and_a_refusal_is_told() -> None:
    asked: list[str] = []
    with s3(lambda _: (404 if len(asked) == 1 else 403, ""), asked) as found:
        found.remove("data/ä b.parquet")
        with pytest.raises(LakeStoreUnreachable, match="s3 answered 403"):
            found.remove("data/c.parquet")
    assert asked == ["DELETE /shop/lake/data/%C3%A4%20b.parquet", "DELETE /shop/lake/data/c.parquet"]


@pytest.mark.parametrize("status", [403, 404, 405, 501])
def test_keys_that_may_not_look_are_no_reason_to_stop(status: int) -> None:
    asked: list[str] = []
    with s3(lambda _: (status, ""), asked) as found:
        assert found.begun() == []
        found.abort(Upload("a", "1", uploads.datetime.now(uploads.UTC)))
    assert len(asked) == 2, "and are not asked again"
