"""Tokens: made, shown once, known by their hash, revoked."""

from __future__ import annotations

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from millrace.errors import (
    ScopeInvalid,
    ScopeMissing,
    TokenExists,
    TokenExpired,
    TokenInvalid,
    TokensUnreadable,
    TokenUnknown,
)
from millrace.serve.tokens import Tokens


def test_a_token_is_known_and_its_file_does_not_hold_it(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path / "sub" / "tokens.json")
    secret = tokens.create("board", ["view:revenue", "tail:*"])
    assert secret not in tokens.file.read_text()
    assert stat.S_IMODE(tokens.file.stat().st_mode) == 0o600
    other = Tokens(tokens.file)
    found = other.found(secret)
    assert found.name == "board"
    assert [found.allows(scope) for scope in ("view:revenue", "view:cities", "tail:x", "send:x", "query", "tail:")] == [
        True, False, True, False, False, False,
    ]  # fmt: skip
    with pytest.raises(ScopeMissing, match="--scope query"):
        found.require("query")
    for wrong in ("", secret[:-1], secret + "x", found.hash):
        with pytest.raises(TokenInvalid):
            other.found(wrong)


def test_a_revoked_token_is_none_at_once(tmp_path: Path) -> None:
    tokens, server = Tokens(tmp_path / "tokens.json"), Tokens(tmp_path / "tokens.json")
    secret, kept = tokens.create("a", ["query"]), tokens.create("b", ["query"])
    token = server.found(secret)
    assert server.holds(token)
    tokens.revoke("a")
    assert not server.holds(token)
    with pytest.raises(TokenInvalid):
        server.found(secret)
    assert server.found(kept).name == "b"
    with pytest.raises(TokenUnknown):
        tokens.revoke("a")


def test_a_token_expires(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path / "tokens.json")
    secret = tokens.create("a", ["query"], datetime.now(UTC) - timedelta(seconds=1))
    with pytest.raises(TokenExpired):
        tokens.found(secret)
    assert not tokens.holds(tokens.all()[0])


def test_what_is_refused(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path / "tokens.json")
    for scope in ("view", "view:", "view:a b", "all", "send:x:y", "query:x"):
        with pytest.raises(ScopeInvalid):
            tokens.create("a", [scope])
    with pytest.raises(ScopeInvalid):
        tokens.create("a", [])
    tokens.create("a", ["query"])
    with pytest.raises(TokenExists):
        tokens.create("a", ["query"])
    tokens.file.write_text("nonsense")
    with pytest.raises(TokensUnreadable):
        tokens.all()
