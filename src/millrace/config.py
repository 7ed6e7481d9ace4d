"""millrace.toml and the environment, read into one frozen `Settings`.

Secrets are references until the moment of use, and never print.

An environment variable stands above the file: `MILLRACE_KAFKA_BOOTSTRAP` above `[kafka] bootstrap`,
`MILLRACE_DATABASES_SHOP_URL` above `[databases.shop] url`.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from millrace.addresses import Listen as Listen
from millrace.errors import (
    ConfigInvalid,
    ConfigUnknown,
    ConfigUnreadable,
    DatabaseUnknown,
    QueueServerUnknown,
    SecretInFile,
    SecretMissing,
    SinkServerUnknown,
    nearest,
)

FILE = "millrace.toml"
STATE_FOLDER = ".millrace"
LAKE_FOLDER = "lake"

# Options whose values are secrets, in the names of librdkafka and of Kafka's Java client.
_SECRET_OPTION = re.compile(r"(password|secret|jaas|token|\.key(\.pem)?$)")
_NAMED_URL = re.compile(r"MILLRACE_(DATABASES|QUEUES|SINKS)_([A-Z0-9_]+)_URL")
# Set by Millrace itself: the marks of local servers (see `local/process.py`).
OWN_VARIABLES = ("MILLRACE_PROJECT", "MILLRACE_SERVER")
_NAMES = """
    CACHE PREFIX KAFKA_BOOTSTRAP CONNECT_URL REGISTRY_URL VIEWS_URL LAKE_FOLDER LAKE_CATALOG LAKE_ENDPOINT
    LAKE_REGION LAKE_TOKEN LAKE_PART_MB SPARK_MASTER SPARK_CHECKPOINTS RUN_APP RUN_SHOW RUN_METRICS RUN_LOG RUN_OWED_MB
    VIEWS_READ_URL SERVE_LISTEN SERVE_ORIGINS SERVE_HOSTS SERVE_TOKENS SERVE_REQUESTS_PER_S SERVE_SOCKETS
"""
VARIABLES = (*(f"MILLRACE_{name}" for name in _NAMES.split()), *OWN_VARIABLES)
_NAME = re.compile(r"^[a-z0-9][a-z0-9_-]*$")
SECTIONS = (
    "prefix", "kafka", "connect", "registry", "views", "lake", "databases", "queues", "sinks", "spark", "run", "serve",
)  # fmt: skip
LOGS = ("text", "json")
# Rows that a sink owes because its server is away are kept on disk, and a flow waits when there are so many of them.
OWED_MB = 1_024
LISTEN = Listen("127.0.0.1", 8642)


@dataclass(frozen=True)
class Secret:
    """A value that is looked up when used and shows as *** everywhere else."""

    key: str
    reference: str = field(repr=False)

    def reveal(self) -> str:
        kind, _, rest = self.reference.partition(":")
        if kind == "env":
            if rest not in os.environ:
                raise SecretMissing(key=self.key, reference=f"the environment variable {rest}", reason="is not set")
            return os.environ[rest]
        if kind == "file":
            try:
                return Path(rest).expanduser().read_text(encoding="utf-8").strip()
            except OSError as error:
                raise SecretMissing(
                    key=self.key, reference=f"the file {rest}", reason=f"cannot be read ({error.strerror})"
                ) from None
        return self.reference

    def __str__(self) -> str:
        return "***"

    def __repr__(self) -> str:
        return f"Secret({self.key}=***)"


@dataclass(frozen=True)
class Kafka:
    """Brokers of one's own. Options have librdkafka's names (`security.protocol`, …) and are passed through."""

    bootstrap: str | None = None
    options: Mapping[str, str | Secret] = field(default_factory=dict)


@dataclass(frozen=True)
class Endpoint:
    """A server of one's own that is known by a URL alone."""

    url: Secret | None = None


@dataclass(frozen=True)
class Lake:
    """`folder` is one that the driver and, on a cluster, every executor mounts; without it, `lake` in the project's. Or
    tables are in a `bucket` of S3 (`s3://…`): Amazon's in `region`, or the one at `endpoint`. `catalog` is the
    PostgreSQL or the REST service, with its `token`, that knows the Iceberg tables; without it, the project's own."""

    folder: Path | None = None
    catalog: Secret | None = None
    bucket: str | None = None
    endpoint: str | None = None
    region: str = "us-east-1"
    token: Secret | None = None
    part_mb: int = 32  # larger objects go to a bucket in parts


@dataclass(frozen=True)
class Database:
    """`connect_password` is the reference by which a Kafka Connect of one's own finds the password: `${file:…}`."""

    name: str
    url: Secret
    connect_password: str | None = None


@dataclass(frozen=True)
class Spark:
    """`checkpoints` is a folder that the driver and, on a cluster, every executor mounts."""

    master: str = "local[*]"
    checkpoints: Path | None = None
    options: Mapping[str, str | Secret] = field(default_factory=dict)

    def revealed(self) -> dict[str, str]:
        """The options as Spark takes them; not to be shown."""
        return {name: value.reveal() if isinstance(value, Secret) else value for name, value in self.options.items()}


@dataclass(frozen=True)
class Run:
    """What `millrace run` does when it is given no argument. `owed_mb` is how much of what sinks could not be given yet
    is kept for each of them before its flow waits."""

    app: str | None = None
    show: tuple[str, ...] = ()
    metrics: Listen | None = None
    log: str = "text"
    owed_mb: int = OWED_MB


@dataclass(frozen=True)
class Serve:
    """What `millrace serve` allows. Pages of `origins` may call it from a browser, and it answers to the names `hosts`
    beside its address. `requests_per_s` is for each token, `sockets` for all together."""

    listen: Listen = LISTEN
    origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    tokens: Path | None = None
    requests_per_s: int = 1_000
    sockets: int = 2_000


@dataclass(frozen=True)
class Settings:
    folder: Path
    prefix: str = ""
    kafka: Kafka = field(default_factory=Kafka)
    connect: Endpoint = field(default_factory=Endpoint)
    registry: Endpoint = field(default_factory=Endpoint)
    views: Endpoint = field(default_factory=Endpoint)
    views_read: Endpoint = field(default_factory=Endpoint)
    lake: Lake = field(default_factory=Lake)
    databases: Mapping[str, Database] = field(default_factory=dict)
    queues: Mapping[str, Secret] = field(default_factory=dict)
    sinks: Mapping[str, Secret] = field(default_factory=dict)
    spark: Spark = field(default_factory=Spark)
    run: Run = field(default_factory=Run)
    serve: Serve = field(default_factory=Serve)

    @property
    def state_folder(self) -> Path:
        """Where everything Millrace keeps for this project lives: servers' data, logs, checkpoints."""
        return self.folder / STATE_FOLDER

    @property
    def tokens(self) -> Path:
        """The file with the hashes of the tokens that `millrace serve` knows."""
        return self.serve.tokens or self.state_folder / "tokens.json"

    @property
    def checkpoints(self) -> Path:
        return self.spark.checkpoints or self.state_folder / "checkpoints"

    @property
    def lake_folder(self) -> Path:
        return self.lake.folder or self.folder / LAKE_FOLDER

    def named(self, name: str) -> str:
        """The name in the outside world (topic, group, slot, ledger) of something called `name` here."""
        return f"{self.prefix}.{name}" if self.prefix else name

    def unnamed(self, name: str) -> str | None:
        """The inverse of `named`; None for a name of another app or stage."""
        if not self.prefix:
            return name
        head = f"{self.prefix}."
        return name[len(head) :] if name.startswith(head) else None

    def database(self, name: str) -> Database:
        if name not in self.databases:
            raise DatabaseUnknown(name=name, hint=nearest(name, self.databases))
        return self.databases[name]

    def queue_server(self, name: str) -> Secret:
        """The URL of a RabbitMQ."""
        if name not in self.queues:
            raise QueueServerUnknown(name=name, hint=nearest(name, self.queues))
        return self.queues[name]

    def sink(self, name: str) -> Secret:
        """The URL of a server that sinks write to."""
        if name not in self.sinks:
            raise SinkServerUnknown(name=name, hint=nearest(name, self.sinks))
        return self.sinks[name]


def masked(url: str) -> str:
    """A URL as it may be shown: without a password."""
    try:
        password = urlsplit(url).password
    except ValueError:
        return "***"
    return url.replace(f":{password}@", ":***@") if password else url


def cache_folder() -> Path:
    """Downloads shared by all projects of this user."""
    if chosen := os.environ.get("MILLRACE_CACHE"):
        return Path(chosen).expanduser().resolve()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "millrace"


def find_folder(start: Path | None = None) -> Path:
    """The project folder: the nearest one upwards that has a millrace.toml, otherwise the one we are in."""
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        if (folder / FILE).is_file():
            return folder
    return here


def load(folder: Path | None = None, environ: Mapping[str, str] | None = None) -> Settings:
    root = find_folder(folder)
    environ = os.environ if environ is None else environ
    path = root / FILE
    raw: dict[str, Any] = {}
    if path.is_file():
        try:
            raw = tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigUnreadable(file=path, reason=error) from None
    return _Reader(path, raw, environ).settings(root)


class _Reader:
    """Walks the parsed file section by section; whatever it is not asked for is unknown, and an error."""

    def __init__(self, path: Path, raw: dict[str, Any], environ: Mapping[str, str]) -> None:
        self.path = path
        self.raw = raw
        self.environ = environ

    def settings(self, root: Path) -> Settings:
        self._refuse_unknown_variables()
        self._known("", self.raw, SECTIONS)
        kafka = self._section("kafka", ("bootstrap", "options"))
        connect = self._section("connect", ("url",))
        registry = self._section("registry", ("url",))
        views = self._section("views", ("url", "read_url"))
        lake = self._section("lake", ("folder", "catalog", "endpoint", "region", "token", "part_mb"))
        spark = self._section("spark", ("master", "checkpoints", "options"))
        run = self._section("run", ("app", "show", "metrics", "log", "owed_mb"))
        prefix = self._text(self.raw, "prefix") or ""
        if prefix and not _NAME.match(prefix):
            raise self._invalid(
                "prefix", "a prefix is lower-case letters, digits, - and _", 'choose one like "dev" or "shop-test"'
            )
        return Settings(
            folder=root,
            prefix=prefix,
            kafka=Kafka(self._text(kafka, "kafka.bootstrap"), self._options(kafka, "kafka.options")),
            connect=self._endpoint(connect, "connect.url"),
            registry=self._endpoint(registry, "registry.url"),
            views=self._endpoint(views, "views.url"),
            views_read=self._endpoint(views, "views.read_url"),
            lake=self._lake(lake),
            databases=self._databases(),
            queues=self._urls("queues"),
            sinks=self._urls("sinks"),
            spark=Spark(
                self._text(spark, "spark.master") or "local[*]",
                self._folder(spark, "spark.checkpoints"),
                self._options(spark, "spark.options"),
            ),
            run=Run(
                self._text(run, "run.app"),
                self._texts(run, "run.show"),
                self._listen(run, "run.metrics"),
                self._log(run, "run.log"),
                self._number(run, "run.owed_mb", OWED_MB),
            ),
            serve=self._serve(),
        )

    def _serve(self) -> Serve:
        table = self._section("serve", ("listen", "origins", "hosts", "tokens", "requests_per_s", "sockets"))
        listen = self._listen(table, "serve.listen") or LISTEN
        origins, hosts = (self._texts(table, f"serve.{name}") for name in ("origins", "hosts"))
        most = (self._number(table, f"serve.{name}", getattr(Serve, name)) for name in ("requests_per_s", "sockets"))
        return Serve(listen, origins, hosts, self._folder(table, "serve.tokens"), *most)

    def _folder(self, table: dict[str, Any], key: str) -> Path | None:
        """Taken from the project's."""
        text = self._text(table, key)
        return (self.path.parent / Path(text).expanduser()).resolve() if text else None

    def _lake(self, table: dict[str, Any]) -> Lake:
        url, token, place = (self._text(table, f"lake.{name}") for name in ("catalog", "token", "folder"))
        if url and not url.startswith(("postgresql:", "http:", "https:", "env:", "file:")):
            reason = "the catalog of Iceberg tables is a PostgreSQL or a REST service, as many can write to at a time"
            raise self._invalid("lake.catalog", reason, "write it as postgresql://user@host:port/name or https://host")
        if token and not token.startswith(("env:", "file:")) and "MILLRACE_LAKE_TOKEN" not in self.environ:
            raise SecretInFile(file=self.path, key="lake.token")
        bucket = place.rstrip("/") if place and place.startswith("s3://") else None
        endpoint = self._text(table, "lake.endpoint") or self.environ.get("AWS_ENDPOINT_URL")
        if endpoint and not endpoint.startswith(("http://", "https://")):
            raise self._invalid("lake.endpoint", "it is no address of an S3", "write it as https://host:port")
        return Lake(
            None if bucket else self._folder(table, "lake.folder"),
            self._secret("lake.catalog", url) if url else None,
            bucket,
            endpoint.rstrip("/") if endpoint else None,
            self._text(table, "lake.region") or self.environ.get("AWS_REGION") or Lake.region,
            self._secret("lake.token", token) if token else None,
            self._number(table, "lake.part_mb", Lake.part_mb, 5, 5000),  # S3 takes no smaller or larger ones
        )

    def _listen(self, table: dict[str, Any], key: str) -> Listen | None:
        name = key.rpartition(".")[2]
        value = table.get(name)
        number = isinstance(value, int) and not isinstance(value, bool)
        text = self._text({**table, name: str(value)} if number else table, key)
        if text is None:
            return None
        if (listen := Listen.of(text)) is None:
            raise self._invalid(key, "it is not a port", 'write it as 9108, or with a host as "0.0.0.0:9108"')
        return listen

    def _log(self, table: dict[str, Any], key: str) -> str:
        text = self._text(table, key) or LOGS[0]
        if text not in LOGS:
            raise self._invalid(key, "there is no such kind of log", f"choose from {', '.join(LOGS)}")
        return text

    def _number(self, table: dict[str, Any], key: str, default: int, least: int = 1, most: int = 0) -> int:
        name, ends = key.rpartition(".")[2], f"to {most}" if most else "on"
        value = self.environ.get(self._variable(key)) or table.get(name, default)
        if isinstance(value, bool) or not str(value).isdecimal() or not least <= int(value) <= (most or int(value)):
            raise self._invalid(key, f"it is not a whole number from {least} {ends}", f"write it as {name} = {default}")
        return int(value)

    def _named(self, section: str, keys: tuple[str, ...]) -> Iterator[tuple[str, dict[str, Any], Secret]]:
        """The sections `[section.NAME]`, each with its URL; one may be a variable alone."""
        tables = self._table(self.raw, section)
        found = filter(None, map(_NAMED_URL.fullmatch, self.environ))
        for name in sorted({*tables, *(match[2].lower() for match in found if match[1].lower() == section)}):
            key = f"{section}.{name}"
            table = self._table(tables, key)
            self._known(key, table, keys)
            url = self._text(table, f"{key}.url")
            if not url:
                raise self._invalid(
                    key, "it has no url", 'write url = "env:NAME", the name of a variable that holds the URL'
                )
            yield name, table, self._secret(f"{key}.url", url)

    def _urls(self, section: str) -> Mapping[str, Secret]:
        return MappingProxyType({name: url for name, _, url in self._named(section, ("url",))})

    def _databases(self) -> Mapping[str, Database]:
        found = {}
        for name, table, url in self._named("databases", ("url", "connect_password")):
            key = f"databases.{name}"
            password = self._text(table, f"{key}.connect_password")
            if password and not re.fullmatch(r"\$\{[^}]+\}", password):
                raise SecretInFile(file=self.path, key=f"{key}.connect_password")
            found[name] = Database(name, url, password)
        return MappingProxyType(found)

    def _endpoint(self, table: dict[str, Any], key: str) -> Endpoint:
        url = self._text(table, key)
        return Endpoint(self._secret(key, url) if url else None)

    def _options(self, table: dict[str, Any], section: str) -> Mapping[str, str | Secret]:
        options: dict[str, str | Secret] = {}
        for name, value in _flatten(self._table(table, section)).items():
            text = str(value).lower() if isinstance(value, bool) else str(value)
            key = f"{section}.{name}"
            reference = text.startswith(("env:", "file:"))
            if _SECRET_OPTION.search(name) and not reference:
                raise SecretInFile(file=self.path, key=key)
            options[name] = self._secret(key, text) if reference else text
        return MappingProxyType(options)

    def _secret(self, key: str, text: str) -> Secret:
        """A reference, or a URL; a password in it is refused in the file, and fine in the environment."""
        if not text.startswith(("env:", "file:")) and self._variable(key) not in self.environ:
            try:
                password = urlsplit(text).password
            except ValueError:
                raise self._invalid(key, "it is not a URL", "write it as postgresql://user@host:port/name") from None
            if password:
                raise SecretInFile(file=self.path, key=key)
        if text.startswith("file:"):
            text = f"file:{self.path.parent / Path(text[5:]).expanduser()}"
        return Secret(key, text)

    def _section(self, name: str, keys: tuple[str, ...]) -> dict[str, Any]:
        table = self._table(self.raw, name)
        self._known(name, table, keys)
        return table

    def _table(self, table: dict[str, Any], key: str) -> dict[str, Any]:
        value = table.get(key.rpartition(".")[2], {})
        if not isinstance(value, dict):
            raise self._invalid(
                key, f"it is a {_kind(value)}, not a section", f"write it as [{key}] with its keys below"
            )
        return value

    def _text(self, table: dict[str, Any], key: str) -> str | None:
        if (variable := self._variable(key)) in self.environ:
            return self.environ[variable] or None
        value = table.get(key.rpartition(".")[2])
        if value is not None and not isinstance(value, str):
            raise self._invalid(key, f"it is a {_kind(value)}, not a text", "put it in double quotes")
        return value or None

    def _texts(self, table: dict[str, Any], key: str) -> tuple[str, ...]:
        if (variable := self._variable(key)) in self.environ:
            return tuple(name.strip() for name in self.environ[variable].split(",") if name.strip())
        value = table.get(key.rpartition(".")[2], [])
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            raise self._invalid(key, f"it is a {_kind(value)}, not a list of texts", 'write it as ["one", "two"]')
        return tuple(value)

    def _refuse_unknown_variables(self) -> None:
        """A variable with a slip in its name would otherwise be passed over in silence."""
        for name in self.environ:
            if name.startswith("MILLRACE_") and name not in VARIABLES and not _NAMED_URL.fullmatch(name):
                named = [f"MILLRACE_{section}_NAME_URL" for section in ("DATABASES", "QUEUES", "SINKS")]
                known = ", ".join([*VARIABLES[: -len(OWN_VARIABLES)], *named])
                raise ConfigUnknown(file="the environment", key=name, hint=nearest(name, VARIABLES), known=known)

    def _known(self, section: str, table: dict[str, Any], keys: tuple[str, ...]) -> None:
        for key in table:
            if key not in keys:
                name = f"{section}.{key}" if section else key
                raise ConfigUnknown(file=self.path, key=name, hint=nearest(key, keys), known=", ".join(keys))

    def _invalid(self, key: str, reason: str, remedy: str) -> ConfigInvalid:
        variable = self._variable(key)
        source = "the environment" if variable in self.environ else self.path
        return ConfigInvalid(
            source=source, key=variable if variable in self.environ else key, reason=reason, remedy=remedy
        )

    @staticmethod
    def _variable(key: str) -> str:
        return "MILLRACE_" + re.sub(r"[^A-Z0-9]", "_", key.upper())


def _kind(value: Any) -> str:
    """What a value is. The value itself may be a secret in the wrong place."""
    names = {bool: "yes or no", str: "text", int: "number", float: "number", list: "list", dict: "section"}
    return names.get(type(value), type(value).__name__)


def _flatten(table: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """`security.protocol = …` in TOML is a table inside a table; Kafka means one name with a dot."""
    flat: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, Mapping):
            flat |= _flatten(value, f"{above}{name}.")
        else:
            flat[above + name] = value
    return flat
