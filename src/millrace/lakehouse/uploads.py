"""Objects of S3 that were to come in parts and never did: of a writer that was killed the parts stay, seen in no list
of objects, until somebody lets go of them. Arrow has no call for that, so these two requests are our own; and a third:
who lets Arrow remove an object finds an empty one there that is called like its folder."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import os
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote, urlsplit
from xml.etree import ElementTree

from millrace.lakehouse.bucket import KEYS, SCHEME, SESSION, Bucket, told

_EMPTY = hashlib.sha256(b"").hexdigest()
_PLAIN = "-._~"
_ANSWER_S = 60
# As `Bucket.java` has it, where a server was too busy or hung up.
_TRIES, _FIRST_WAIT_S = 5, 0.2
# It is gone; or whoever has these keys may not look, or the S3 has no list of them. Then they are the bucket's own to
# let go of, by a rule of its life cycle: nobody reads them.
_NOT_FOR_US = (404, 403, 405, 501)


@dataclass(frozen=True)
class Upload:
    """`path` is taken from the place that was asked."""

    path: str
    id: str
    at: datetime


class Uploads:
    """Those below a place."""

    def __init__(self, place: Bucket) -> None:
        self._place = place
        name, _, self._under = place.url.removeprefix(SCHEME).partition("/")
        store = place.store
        self._root = f"https://{name}.s3.{store.region}.amazonaws.com" if store.endpoint is None else store.endpoint
        self._root += "/" if store.endpoint is None else f"/{name}/"

    def begun(self, under: str = "") -> list[Upload]:
        """That have not come to their end: somebody is at work on them, or was killed."""
        with told(self._place.url):
            return list(self._pages(f"{self._under}/{under}".lstrip("/")))

    def abort(self, upload: Upload) -> None:
        """Nothing happens if it came to its end meanwhile."""
        with told(self._place.url):
            self._asked("DELETE", f"{self._under}/{upload.path}".lstrip("/"), {"uploadId": upload.id})

    def remove(self, path: str) -> None:
        """An object, which need not be there."""
        with told(self._place.url):
            self._asked("DELETE", f"{self._under}/{path}".lstrip("/"), {}, (404,))

    def _pages(self, prefix: str) -> Iterator[Upload]:
        query = {"uploads": "", "prefix": prefix}
        while True:
            try:
                page = ElementTree.fromstring(self._asked("GET", "", query) or "<empty/>")  # noqa: S314 -- of our S3
            except ElementTree.ParseError as error:
                raise OSError(f"GET of uploads: the answer is not S3's: {error}") from None
            listed = page.findall("{*}Upload")
            for each in listed:
                # The prefix once more: not every S3 knows it.
                if (key := _text(each, "Key")).startswith(prefix):
                    yield Upload(key.removeprefix(self._under).lstrip("/"), _text(each, "UploadId"), _begun(each))
            if _text(page, "IsTruncated") != "true":
                return
            following = _following(page, listed)
            if following.items() <= query.items():
                raise OSError("GET of uploads: s3 says that there are more, and not where they begin")
            query |= following

    def _asked(self, method: str, key: str, query: Mapping[str, str], fine: Sequence[int] = _NOT_FOR_US) -> str:
        words = "&".join(f"{quote(name, _PLAIN)}={quote(value, _PLAIN)}" for name, value in sorted(query.items()))
        url = f"{self._root}{quote(key, _PLAIN + '/')}" + (f"?{words}" if words else "")
        what = "uploads" if query else key
        reason = ""
        for number in range(_TRIES):
            if number:
                time.sleep(_FIRST_WAIT_S * 2 ** (number - 1))
            request = urllib.request.Request(url, method=method)  # noqa: S310 -- the configured S3
            for name, value in signed(method, url, self._place.store.region, datetime.now(UTC)).items():
                request.add_header(name, value)
            try:
                with urllib.request.urlopen(request, timeout=_ANSWER_S) as answer:  # noqa: S310
                    return str(answer.read().decode())
            except urllib.error.HTTPError as error:
                if error.code in fine:
                    return ""
                reason = f"s3 answered {error.code}"
                if error.code < 500 and error.code != 429:
                    break
            except (http.client.HTTPException, OSError) as error:  # it hung up, was silent, or is not there
                reason = type(getattr(error, "reason", error)).__name__
        raise OSError(f"{method} of {what}: {reason}")


def _following(page: ElementTree.Element, listed: Sequence[ElementTree.Element]) -> dict[str, str]:
    """Where the next page begins: as this one says it, or else behind the last that it has."""
    marker, id_ = _text(page, "NextKeyMarker"), _text(page, "NextUploadIdMarker")
    if not marker and listed:
        marker, id_ = _text(listed[-1], "Key"), _text(listed[-1], "UploadId")
    return {"key-marker": marker, "upload-id-marker": id_} if marker else {}


def _begun(upload: ElementTree.Element) -> datetime:
    text = _text(upload, "Initiated")
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except ValueError:
        key = _text(upload, "Key")
        raise OSError(f"GET of uploads: s3 does not say when {key} was begun: {text or 'nothing'}") from None


def signed(method: str, url: str, region: str, now: datetime, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The headers of a request without a body, signed as Amazon's "Signature Version 4" wants it. `more` are signed
    too, in lower case."""
    parts, at = urlsplit(url), now.strftime("%Y%m%dT%H%M%SZ")
    headers = {**(more or {}), "host": parts.netloc, "x-amz-content-sha256": _EMPTY, "x-amz-date": at}
    if os.environ.get(SESSION):
        headers["x-amz-security-token"] = os.environ[SESSION]
    names = ";".join(sorted(headers))
    lines = [f"{name}:{value.strip()}\n" for name, value in sorted(headers.items())]
    asked = "\n".join([method, parts.path, parts.query, "".join(lines), names, _EMPTY])
    scope = f"{at[:8]}/{region}/s3/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", at, scope, hashlib.sha256(asked.encode()).hexdigest()])
    key = f"AWS4{os.environ[KEYS[1]]}".encode()
    for part in (at[:8], region, "s3", "aws4_request", text):
        key = hmac.digest(key, part.encode(), "sha256")
    del headers["host"]  # urllib's own to say
    credential = f"Credential={os.environ[KEYS[0]]}/{scope}"
    return {**headers, "authorization": f"AWS4-HMAC-SHA256 {credential}, SignedHeaders={names}, Signature={key.hex()}"}


def _text(element: ElementTree.Element, name: str) -> str:
    return element.findtext(f"{{*}}{name}") or ""
