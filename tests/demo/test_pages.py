"""What the pages of the applications say, what `millrace init` makes of them, and what lint finds in them."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from millrace import config
from millrace.cli import main
from millrace.cli.demo import DEMOS
from millrace.cli.templates import TEMPLATES
from millrace.demo.tour import STOPS, USUAL
from millrace.engine.lint import lint
from tests.test_guide import GUIDE, blocks


def test_every_demo_has_a_page_and_shows_topics_that_it_has() -> None:
    assert tuple(STOPS) == DEMOS
    assert set(USUAL) <= set(STOPS)
    for name, stop in STOPS.items():
        app = importlib.import_module(f"millrace.demo.{name}").app
        assert app.name == name
        assert set(stop.topics) <= {topic.name for topic in app.graph().topics}
        assert f"millrace demo --only {name}" in (GUIDE / f"{name}.md").read_text(encoding="utf-8")


@pytest.mark.spark
@pytest.mark.turn(0, 2)
def test_the_page_about_fraud(play: Any) -> None:
    (block,) = blocks("fraud.md")
    names: dict[str, Any] = {}
    exec(block, names)
    names["test_the_third_failed_payment_raises_an_alert"](play)


@pytest.mark.spark
@pytest.mark.parametrize("template", TEMPLATES)
def test_a_project_made_of_a_template_passes_its_test(
    template: str, folder: Path, spark: SparkSession, play: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"my_{template}"
    assert main(["init", name, "--template", template]) == 0
    monkeypatch.syspath_prepend(folder / name)
    made = importlib.import_module(f"test_{name}")
    assert importlib.import_module(name).app.name == name
    tests = [each for name, each in vars(made).items() if name.startswith("test_")]
    for test in tests:
        wanted = test.__code__.co_varnames[: test.__code__.co_argcount]
        test(**{each: {"spark": spark, "play": play}[each] for each in wanted})
    assert tests
    for module in (name, f"test_{name}"):
        del sys.modules[module]


def test_a_project_whose_name_ends_like_its_template_has_it_once() -> None:
    for source, template in TEMPLATES.items():
        assert "my_my_" not in "".join(template.written(f"my_{source}").values())
    made = TEMPLATES["fraud"].written("my_fraud")
    assert "python -m my_fraud_training " in made["my_fraud_training.py"]
    assert 'application("my_fraud_exactly_once", ' in made["my_fraud.py"]


@pytest.mark.spark
def test_lint_finds_what_the_pages_say(spark: SparkSession, folder: Path) -> None:
    """In real time two topics are read side by side: a payment and a change of its profile may come in another order
    again. The page says that a payment is judged by what was known when it came. And two views are of all that ever
    came, as their pages say."""
    told = {
        "fraud": {("uncertain-repeat", "alerts")},
        "attribution": {("unbounded-state", "campaigns")},
        "features": {("unbounded-state", "customer_features")},
    }
    for name in DEMOS:
        app = importlib.import_module(f"millrace.demo.{name}").app
        found = {(each.rule, each.node) for each in lint(app, config.load(folder), spark).findings}
        assert found == told.get(name, set()), name
