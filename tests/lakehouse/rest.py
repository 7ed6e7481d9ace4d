"""Iceberg's own REST catalog as a child process, its tables in a PostgreSQL and below a folder."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pyspark

from millrace.local import jars, java

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
