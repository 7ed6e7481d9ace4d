"""`millrace init`, `--version`, `--help` and completion, and how every command fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace.cli import main, parser
from tests.command import millrace


def test_init_makes_a_project_and_never_writes_over_one(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "shop"]) == 0
    made = {path.name for path in (folder / "shop").iterdir()}
    assert made == {"shop.py", "test_shop.py", "millrace.toml", "README.md", ".gitignore"}
    assert 'App("shop")' in (folder / "shop" / "shop.py").read_text()
    (folder / "shop" / "shop.py").write_text("mine")
    assert main(["init", "shop"]) == 1
    assert "MR-FOLDER-TAKEN" in capsys.readouterr().err
    assert (folder / "shop" / "shop.py").read_text() == "mine"


@pytest.mark.parametrize("name", ["Shop", "my-shop", "1shop", "../shop", "class", "millrace", "json", ""])
def test_names_that_are_no_module_are_refused(folder: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", name]) == 1
    assert "MR-PROJECT-NAME-INVALID" in capsys.readouterr().err
    assert not list(folder.iterdir())


def test_version_names_spark_kafka_and_java(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    words = dict(line.split(" ", 1) for line in capsys.readouterr().out.splitlines())
    assert set(words) == {"Millrace", "Spark", "Kafka", "Java"}
    assert words["Spark"] == "4.3.0"
    assert words["Kafka"] == "4.3.1"


def test_version_without_java_still_answers(folder: Path) -> None:
    answer = millrace("--version", cwd=folder, env={"JAVA_HOME": str(folder), "PATH": str(folder)})
    assert answer.returncode == 0
    assert "Java none that fits" in answer.stdout


def test_every_command_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    root = parser()
    (commands,) = (action for action in root._actions if action.dest == "==SUPPRESS==" and action.choices)
    for name in commands.choices or ():
        with pytest.raises(SystemExit) as ended:
            root.parse_args([name, "--help"])
        assert ended.value.code == 0
        assert name in capsys.readouterr().out


def test_alone_it_prints_help_and_a_noun_prints_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 1
    assert "commands:" in capsys.readouterr().out
    assert main(["topic"]) == 1
    assert "millrace topic" in capsys.readouterr().out


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion_knows_the_commands(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for word in ("deadletter", "psql", "--detach"):
        assert word in script


def test_what_nobody_foresaw_is_one_sentence_with_the_details_in_a_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("first line\nsecond line")

    monkeypatch.setattr("millrace.config.load", broken)
    assert main(["status"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "RuntimeError: first line" in said
    assert "second line" in (folder / ".millrace" / "logs" / "millrace.log").read_text()


def test_a_bad_configuration_is_the_users_error(folder: Path) -> None:
    (folder / "millrace.toml").write_text("prefix = ")
    answer = millrace("status", cwd=folder)
    assert answer.returncode == 1
    assert answer.stderr.startswith("error: MR-CONFIG-UNREADABLE")
    assert answer.stderr.count("\n") == 1


def test_output_that_nobody_reads_is_no_error(folder: Path) -> None:
    answer = millrace("status", cwd=folder, prefix=("bash", "-c", '"$@" | head -c 1', "-"))
    assert (answer.returncode, answer.stderr) == (0, "")


@pytest.mark.parametrize("words", [["fly"], ["topic", "fly"], ["up", "--fast"], ["status", "more"], ["logs"]])
def test_a_wrong_command_is_one_sentence(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: MR-USAGE-INVALID")
    assert said.count("\n") == 1
    assert "--help" in said
