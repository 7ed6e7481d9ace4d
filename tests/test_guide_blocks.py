"""Every block of every page of the guide says its language and is of that language, and every command of ours in it is
one that the command line takes. What the blocks do is tested page by page, in `test_guide.py` and beside what they are
about; here nothing new is overlooked."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

import pytest
import sqlglot
import yaml

from millrace import config
from millrace.cli import parser

GUIDE = Path(__file__).parent.parent / "docs" / "guide"
PAGES = sorted(GUIDE.glob("*.md"))

# What is no whole program, and why: (page, language, how the block begins).
EXCEPTIONS = {
    ("serve.md", "json", '{"view": "revenue"'): "an answer, shortened by …",
    ("serve.md", "json", '{"type": "snapshot"'): "a message, shortened by …",
    ("serve.md", "json", '{"type": "tentative"'): "a message, shortened by …",
    ("serve.md", "sql", "INSERT INTO orders …"): "an INSERT of anything",
    ("recover.md", "sql", "CREATE TEMPORARY TABLE lines"): "psql's own \\copy; tests/engine/test_recover.py runs it",
}
_FENCE = re.compile(r"^( *)```(.*?)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
# In front of a command: settings of the shell, and what begins another one.
_COMMAND = re.compile(r"(?:^|\$\(|[|;&(] *|- run: )(?:[A-Z_]+=\S+ )*(?=(millrace [^\n]*))")
# In a text that people read, "a|b" is a choice.
_CHOICE = re.compile(r"(?<=\S)\|[a-z|]+")
_ENDS = frozenset({"|", "||", "&&", "&", ";", "<", ">", ">>", "(", ")"})


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line} ({self.language or 'no language'})"

    @property
    def excepted(self) -> bool:
        return any((self.page, self.language) == key[:2] and self.text.startswith(key[2]) for key in EXCEPTIONS)


def blocks() -> Iterator[Block]:
    for path in PAGES:
        page = path.read_text(encoding="utf-8")
        for found in _FENCE.finditer(page):
            line = page.count("\n", 0, found.start()) + 1
            yield Block(path.name, line, found[2].strip(), dedent(found[3]))


def indented(page: str) -> Iterator[str]:
    """The lines of blocks without a fence."""
    for line in _FENCE.sub("", page).splitlines():
        if line.startswith("    "):
            yield line.strip()


def commands(text: str) -> Iterator[list[str]]:
    """The arguments of each `millrace …` in lines of a shell."""
    for line in text.replace("\\\n", " ").splitlines():
        for found in _COMMAND.finditer(line):
            words = shlex.shlex(_CHOICE.sub("", found[1]), posix=True, punctuation_chars=True)
            words.whitespace_split = True
            arguments: list[str] = []
            for word in words:
                if set(word) <= set("|&;<>()") or word in _ENDS:
                    break
                arguments.append(word)
            yield arguments[1:]


def python(text: str, _: Path) -> None:
    compile(text, "the guide", "exec")


def toml(text: str, folder: Path) -> None:
    """Not TOML alone: a name that Millrace does not know is an error."""
    tomllib.loads(text)
    (folder / "millrace.toml").write_text(text, encoding="utf-8")
    config.load(folder, dict.fromkeys(re.findall(r"env:(\w+)", text), "x"))


def shell(text: str, _: Path) -> None:
    done = subprocess.run([shutil.which("bash") or "bash", "-n"], input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def plain(text: str, _: Path) -> None:
    """A picture or what is printed: what is to be typed says that it is."""
    assert not re.search(r"^\s*(millrace|curl|psql) ", text, re.MULTILINE), "this is sh, not text"


LANGUAGES: dict[str, Callable[[str, Path], object]] = {
    "python": python,
    "toml": toml,
    "json": lambda text, _: [json.loads(line) for line in text.splitlines()],
    "yaml": lambda text, _: yaml.safe_load(text),
    "sql": lambda text, _: sqlglot.parse(text, read="postgres"),
    "sh": shell,
    "bash": shell,
    "text": plain,
}


def test_each_block_is_of_the_language_that_it_says(tmp_path: Path) -> None:
    for block in blocks():
        assert block.language in LANGUAGES, f"{block}: its language is none of {', '.join(LANGUAGES)}"
        if block.excepted:
            continue
        try:
            LANGUAGES[block.language](block.text, tmp_path)
        except Exception as error:
            raise AssertionError(f"{block}: {error}") from error


def test_each_exception_is_needed(tmp_path: Path) -> None:
    for page, language, begin in EXCEPTIONS:
        (block,) = [each for each in blocks() if (each.page, each.language) == (page, language) and begin in each.text]
        with pytest.raises(Exception, match=r"."):
            LANGUAGES[language](block.text, tmp_path)


def test_each_command_is_one_that_is_taken() -> None:
    taken, root = 0, parser()
    for path in PAGES:
        page = path.read_text(encoding="utf-8")
        shown = [each.text for each in blocks() if each.page == path.name and each.language in ("sh", "bash", "yaml")]
        for given in (each for text in (*shown, *indented(page)) for each in commands(text)):
            said = f"{path.name}: millrace {shlex.join(given)}"
            try:
                args, rest = root.parse_known_args(given)
            except Exception as error:
                raise AssertionError(f"{said}: {error}") from error
            assert hasattr(args, "run"), f"{said}: no command"
            assert not rest or hasattr(args, "passed_on"), f"{said}: unknown {rest}"
            taken += 1
    assert taken > 100


def test_commands_are_found_wherever_they_stand() -> None:
    text = (
        "A=1 millrace up kafka  # and more\nx=$(millrace url kafka) | millrace logs x|y -f > out\n- run: millrace down"
    )
    assert list(commands(text)) == [["up", "kafka"], ["url", "kafka"], ["logs", "x", "-f"], ["down"]]
