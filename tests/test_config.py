"""millrace.toml and the environment: what is read, what is refused and in which words, and that secrets stay unseen."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

from millrace import config
from millrace.errors import (
    ConfigInvalid,
    ConfigUnknown,
    ConfigUnreadable,
    DatabaseUnknown,
    MillraceError,
    SecretInFile,
    SecretMissing,
)

CANARY = "canary-4711"


def load(folder: Path, text: str, **environ: str) -> config.Settings:
    (folder / "millrace.toml").write_text(text)
    return config.load(folder, environ)


def test_everything_has_a_default(tmp_path: Path) -> None:
    settings = config.load(tmp_path, {})
    assert settings.folder == tmp_path
    assert settings.kafka.bootstrap is None
    assert settings.named("payments") == "payments"
    assert settings.checkpoints == tmp_path / ".millrace" / "checkpoints"


def test_the_file_is_read_and_the_environment_stands_above_it(tmp_path: Path) -> None:
    text = """
        prefix = "dev"
        [kafka]
        bootstrap = "a:9092"
        [kafka.options]
        security.protocol = "SASL_SSL"
        "sasl.password" = "env:PASSWORD"
        enable.ssl.certificate.verification = true
        [connect]
        url = "http://connect:8083"
        [databases.shop]
        url = "env:SHOP_URL"
        [spark]
        master = "local[2]"
        checkpoints = "elsewhere"
        [spark.options]
        spark.executor.memory = "2g"
        spark.hadoop.fs.s3a.secret.key = "env:S3_KEY"
        [run]
        app = "shop:app"
        show = ["views"]
    """
    settings = load(tmp_path, text, MILLRACE_KAFKA_BOOTSTRAP="b:9092", MILLRACE_RUN_SHOW="one, two")
    assert settings.kafka.bootstrap == "b:9092"
    assert settings.kafka.options["security.protocol"] == "SASL_SSL"
    assert settings.kafka.options["enable.ssl.certificate.verification"] == "true"
    assert settings.connect.url is not None
    assert settings.connect.url.reveal() == "http://connect:8083"
    assert settings.spark.options["spark.executor.memory"] == "2g"
    assert str(settings.spark.options["spark.hadoop.fs.s3a.secret.key"]) == "***"
    assert settings.checkpoints == tmp_path / "elsewhere"
    assert settings.run.show == ("one", "two")
    assert (settings.named("t"), settings.unnamed("dev.t"), settings.unnamed("prod.t")) == ("dev.t", "t", None)


def test_it_is_found_from_a_folder_below(tmp_path: Path) -> None:
    (tmp_path / "millrace.toml").write_text('prefix = "up"')
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    assert config.load(below, {}).prefix == "up"


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ("prefix = ", ConfigUnreadable, "not valid TOML"),
        ("[kafak]\n", ConfigUnknown, "did you mean 'kafka'"),
        ('[kafka]\nbootstap = "x"', ConfigUnknown, "did you mean 'bootstrap'"),
        ('prefix = "Dev!"', ConfigInvalid, "lower-case"),
        ("[kafka]\nbootstrap = 9092", ConfigInvalid, "double quotes"),
        ('kafka = "a:9092"', ConfigInvalid, "not a section"),
        ('[run]\nshow = "views"', ConfigInvalid, "not a list"),
        ("[run]\nmetrics = true", ConfigInvalid, "double quotes"),
        ("[run]\nmetrics = 70000", ConfigInvalid, "not a port"),
        ('[run]\nmetrics = "here"', ConfigInvalid, "0.0.0.0:9108"),
        ('[run]\nlog = "xml"', ConfigInvalid, "text, json"),
        ("[databases.shop]\n", ConfigInvalid, "no url"),
        (f'[databases.shop]\nurl = "postgresql://me:{CANARY}@host/shop"', SecretInFile, "env:NAME"),
        (f'[kafka.options]\n"sasl.password" = "{CANARY}"', SecretInFile, "env:NAME"),
        (f'[registry]\nurl = "http://me:{CANARY}@host"', SecretInFile, "env:NAME"),
        (f'[lake]\ntoken = "{CANARY}"', SecretInFile, "env:NAME"),
        (f'[databases]\nshop = "postgresql://me:{CANARY}@host/shop"', ConfigInvalid, "not a section"),
        (f'[spark.options]\nspark.hadoop.fs.s3a.secret.key = "{CANARY}"', SecretInFile, "env:NAME"),
        (f'[run]\nshow = "{CANARY}"', ConfigInvalid, "not a list"),
        (f'[kafka.options]\n"sasl.jaas.config" = "password={CANARY}"', SecretInFile, "env:NAME"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(
    tmp_path: Path, text: str, error: type[MillraceError], says: str
) -> None:
    with pytest.raises(error, match=says) as caught:
        load(tmp_path, text)
    assert "\n" not in str(caught.value)
    assert CANARY not in str(caught.value)


def test_secrets_are_looked_up_when_used_and_never_print(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(f"{CANARY}\n")
    settings = load(
        tmp_path,
        '[databases.shop]\nurl = "file:secret"\n[databases.other]\nurl = "env:NOT_SET"',
        MILLRACE_DATABASES_THIRD_URL=f"postgresql://me:{CANARY}@host/third",
    )
    assert settings.database("shop").url.reveal() == CANARY
    assert settings.database("third").url.reveal().endswith("/third")
    for shown in (repr(settings), str(settings), f"{settings.database('third').url}", str(settings.databases)):
        assert CANARY not in shown
    with pytest.raises(SecretMissing, match="NOT_SET"):
        settings.database("other").url.reveal()
    with pytest.raises(DatabaseUnknown, match="did you mean 'shop'"):
        settings.database("shpo")


def test_a_slip_in_a_variables_name_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(ConfigUnknown, match="did you mean 'MILLRACE_KAFKA_BOOTSTRAP'"):
        config.load(tmp_path, {"MILLRACE_KAFKA_BOOTSTAP": "x"})


def test_a_url_is_shown_without_its_password() -> None:
    assert config.masked(f"http://me:{CANARY}@host:1/x") == "http://me:***@host:1/x"
    assert config.masked("http://host:1/x") == "http://host:1/x"


def test_errors_survive_a_trip_between_processes() -> None:
    error = DatabaseUnknown(name="x", hint="")
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again)) == (DatabaseUnknown, str(error))


def test_the_guide_shows_a_configuration_that_loads(tmp_path: Path) -> None:
    guide = Path(__file__).parent.parent / "docs" / "guide" / "configuration.md"
    (block,) = re.findall(r"```toml\n(.*?)```", guide.read_text(encoding="utf-8"), re.DOTALL)
    settings = load(tmp_path, block)
    assert settings.kafka.options["sasl.mechanisms"] == "SCRAM-SHA-512"
    assert settings.spark.checkpoints == Path("/mnt/shared/shop")
    assert (settings.run.metrics, settings.run.log) == (config.Listen("127.0.0.1", 9108), "json")
    assert settings.serve.listen == config.Listen("127.0.0.1", 8642)
    assert settings.serve.origins == ("https://board.example",)
    assert settings.tokens == tmp_path / "tokens.json"
    assert load(tmp_path, block, MILLRACE_SERVE_SOCKETS="7").serve.sockets == 7
    assert load(tmp_path, "").tokens == tmp_path / ".millrace" / "tokens.json"
    assert load(tmp_path, block, MILLRACE_RUN_METRICS="::1:80").run.metrics == config.Listen("::1", 80)
