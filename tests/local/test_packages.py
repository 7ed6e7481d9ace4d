"""Debian packages unpacked into the cache: whole or not at all, and in one sentence if they cannot be had."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from millrace import config, local
from millrace.errors import ServerNotInstalled
from millrace.local import packages
from millrace.local.servers import rabbitmq


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MILLRACE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_machine_without_apt_is_told_to_install(cache: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLRACE_CACHE", str(cache))
    here = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: here(name) if name == "setpriv" else None)
    with pytest.raises(ServerNotInstalled, match=r"there is no apt-get.*apt-get install rabbitmq-server"):
        local.up(config.load(folder), ("rabbitmq",), detach=True)
    assert not list(cache.glob("packages/*"))


@pytest.mark.skipif(shutil.which("apt-get") is None, reason="this is not Debian")
def test_a_package_that_apt_does_not_know_leaves_nothing_behind(cache: Path) -> None:
    with pytest.raises(packages.PackagesUnobtainable, match="apt-get said: Unable to locate package millrace-nothing"):
        packages.unpacked("nothing", ["millrace-nothing"], lambda *_: None)
    assert not list(cache.glob("packages/*"))


def test_erlang_is_told_where_it_will_be(tmp_path: Path) -> None:
    script = tmp_path / "draft" / rabbitmq.ERLANG_PATH / "bin/erl"
    script.parent.mkdir(parents=True)
    script.write_text("if x\n    ROOTDIR=/usr/lib/erlang\nfi\nBINDIR=$ROOTDIR/bin\n")
    rabbitmq._settle(tmp_path / "draft", Path("/a folder/rabbitmq-1"))
    assert 'ROOTDIR="/a folder/rabbitmq-1/usr/lib/erlang"\n' in script.read_text()
