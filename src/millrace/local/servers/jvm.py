"""What servers on the JVM have in common: the command line, and a log file that does not grow without bound."""

from __future__ import annotations

import shutil
from pathlib import Path

from millrace.local import jars, java
from millrace.local.declare import Command, Site


def command(site: Site, group: str, main: list[str], heap_mb: int, options: tuple[str, ...] = ()) -> Command:
    """`java` with the jars of a group and the arguments of its main class."""
    return program(site, ["-cp", classpath(group), *main], heap_mb, options)


def program(site: Site, what: list[str], heap_mb: int, options: tuple[str, ...] = ()) -> Command:
    """`java` with its memory bounded, its log4j2 output in the server's log file."""
    argv = [
        str(java.find()),
        f"-Xmx{heap_mb}m",
        "-XX:+UseSerialGC" if heap_mb <= 256 else "-XX:+UseG1GC",
        "-XX:MaxMetaspaceSize=256m",
        "-Djava.awt.headless=true",
        f"-Dlog4j2.configurationFile={_logging(site)}",
        *options,
        *what,
    ]
    return Command(argv)


def classpath(group: str) -> str:
    return ":".join(map(str, jars.paths(group)))


def temporary(site: Site) -> Path:
    """A folder for what a server writes to the system's temporary folder otherwise; emptied at each start."""
    folder = site.folder / "tmp"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def write_properties(path: Path, values: dict[str, object]) -> Path:
    """A Java properties file: Latin-1, with everything else and the backslash escaped."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{name}={_escaped(value)}\n" for name, value in values.items()), encoding="ascii")
    return path


def _escaped(value: object) -> str:
    units = str(value).replace("\\", "\\\\").encode("utf-16-be")
    pairs = zip(units[::2], units[1::2], strict=True)
    return "".join(chr(low) if not high and 32 <= low < 127 else f"\\u{high:02x}{low:02x}" for high, low in pairs)


def _logging(site: Site) -> Path:
    values: dict[str, object] = {
        "status": "error",
        "appender.file.type": "RollingFile",
        "appender.file.name": "file",
        "appender.file.fileName": site.log,
        "appender.file.filePattern": f"{site.log}.%i",
        "appender.file.layout.type": "PatternLayout",
        "appender.file.layout.pattern": "%d{ISO8601} %p %m (%c{1})%n%throwable",
        "appender.file.policies.type": "SizeBasedTriggeringPolicy",
        "appender.file.policies.size": "10MB",
        "appender.file.strategy.type": "DefaultRolloverStrategy",
        "appender.file.strategy.max": "2",
        # It tells of skipped events with their rows.
        "logger.binlog.name": "io.debezium.connector.binlog",
        "logger.binlog.level": "warn",
        "rootLogger.level": "info",
        "rootLogger.appenderRef.file.ref": "file",
    }
    return write_properties(site.folder / "log4j2.properties", values)
