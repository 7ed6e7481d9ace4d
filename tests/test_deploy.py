"""What `deploy/` holds fits the code: settings that are read, ports that meet, metrics that exist, time to stop in."""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from millrace import config
from millrace.cli import parser
from millrace.engine.keeping import FINISH_S
from millrace.engine.run import STOP_S
from millrace.engine.session import JVM_END_S, partitions
from millrace.exposition import Metric
from millrace.serve.metrics import METRICS, metrics
from tests.serve.exposition import parsed
from tests.serve.test_metrics import told

DEPLOY = Path(__file__).parent.parent / "deploy"
STOP_WHOLE_S = STOP_S + FINISH_S + JVM_END_S
WORD = re.compile(r"\bmillrace_\w+")


def text(name: str) -> str:
    return (DEPLOY / name).read_text(encoding="utf-8")


@pytest.fixture
def manifests() -> dict[str, Any]:
    """By their kinds, of which there is one each."""
    found: dict[str, Any] = {}
    for path in sorted((DEPLOY / "kubernetes").iterdir()):
        for each in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            assert each["apiVersion"]
            assert each["kind"] not in found
            found[each["kind"]] = each
    return found


def test_kubernetes_gives_the_driver_what_its_settings_name(
    manifests: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / config.FILE).write_text(manifests["ConfigMap"]["data"][config.FILE])
    settings = config.load(tmp_path, {})
    options = settings.spark.revealed()
    namespace, claim = (
        manifests["Namespace"]["metadata"]["name"],
        manifests["PersistentVolumeClaim"]["metadata"]["name"],
    )
    driver = manifests["StatefulSet"]["spec"]["template"]["spec"]
    (container,) = driver["containers"]
    name = manifests["StatefulSet"]["metadata"]["name"]
    assert {each["metadata"].get("namespace", namespace) for each in manifests.values()} == {namespace}
    assert manifests["StatefulSet"]["spec"]["replicas"] == 1, "a flow has one driver"
    assert manifests["PersistentVolumeClaim"]["spec"]["accessModes"] == ["ReadWriteMany"]
    assert settings.spark.master.startswith("k8s://https://")

    # Executors mount the same claim where the driver does, and that is where checkpoints are.
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in driver["volumes"]}
    volume = "spark.kubernetes.executor.volumes.persistentVolumeClaim.checkpoints."
    assert mounted["checkpoints"] == options[f"{volume}mount.path"] == str(settings.checkpoints)
    claims = {options[f"{volume}options.claimName"], volumes["checkpoints"]["persistentVolumeClaim"]["claimName"]}
    assert claims == {claim}
    assert set(mounted) == set(volumes)
    assert mounted["settings"] == f"/app/{config.FILE}"
    assert mounted["scratch"] == f"/app/{config.STATE_FOLDER}"
    assert volumes["settings"]["configMap"]["name"] == manifests["ConfigMap"]["metadata"]["name"]

    # Executors find the driver.
    service = manifests["Service"]
    assert options["spark.driver.host"] == f"{name}-0.{service['metadata']['name']}.{namespace}.svc"
    assert options["spark.kubernetes.driver.pod.name"] == f"{name}-0"
    assert options["spark.kubernetes.namespace"] == namespace
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"]
    assert service["spec"]["selector"] == manifests["StatefulSet"]["spec"]["template"]["metadata"]["labels"]
    assert manifests["StatefulSet"]["spec"]["serviceName"] == service["metadata"]["name"]
    ports = {each["name"]: each["port"] for each in service["spec"]["ports"]}
    assert settings.run.metrics is not None
    assert ports == {
        "driver": int(options["spark.driver.port"]),
        "blocks": int(options["spark.blockManager.port"]),
        "metrics": settings.run.metrics.port,
    }
    assert ports == {each["name"]: each["containerPort"] for each in container["ports"]}
    assert settings.run.metrics.host == "0.0.0.0"
    assert container["image"] == options["spark.kubernetes.container.image"]
    assert partitions(settings.spark.master, options) == 4

    # It may make pods, ends in order, and runs as nobody in particular.
    account = manifests["ServiceAccount"]["metadata"]["name"]
    assert driver["serviceAccountName"] == account == manifests["RoleBinding"]["subjects"][0]["name"]
    assert manifests["RoleBinding"]["roleRef"]["name"] == manifests["Role"]["metadata"]["name"]
    pods = next(rule for rule in manifests["Role"]["rules"] if "pods" in rule["resources"])
    assert {"create", "get", "list", "watch", "delete"} <= set(pods["verbs"])
    assert driver["terminationGracePeriodSeconds"] > STOP_WHOLE_S
    assert container["readinessProbe"]["httpGet"] == {"path": "/health", "port": "metrics"}
    assert "livenessProbe" not in container
    assert driver["securityContext"]["runAsNonRoot"]
    assert f"--uid {driver['securityContext']['runAsUser']} " in text("Dockerfile")
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    monkeypatch.setenv("REPORTS_URL", "postgresql://reports")
    named = {each["name"] for each in container["env"]}
    assert named == {"REPORTS_URL"}
    assert settings.database("reports").url.reveal() == "postgresql://reports"


def test_the_systemd_unit_stops_python_and_waits(tmp_path: Path) -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(text("millrace@.service"))
    service = unit["Service"]
    assert service["KillMode"] == "mixed"
    assert int(service["TimeoutStopSec"]) > STOP_WHOLE_S
    assert (service["Restart"], service["RestartPreventExitStatus"]) == ("on-failure", "1")
    assert service["User"] not in ("", "root")
    command = service["ExecStart"].split()
    given = parser().parse_args(command[1:])
    assert (given.log, given.metrics) == ("json", "9108")
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("there is no systemd-analyze here")
    # What the unit starts is not installed here.
    copy = tmp_path / "millrace@shop.service"
    copy.write_text(text("millrace@.service").replace(command[0], shutil.which("true") or ""))
    done = subprocess.run([analyze, "--man=no", "verify", str(copy)], capture_output=True, text=True, check=False)
    about = [line for line in done.stderr.splitlines() if "millrace@" in line]
    assert not about


def test_the_image_starts_drivers_and_executors(tmp_path: Path) -> None:
    stages = re.split(r"^FROM ", text("Dockerfile"), flags=re.M)[1:]
    assert all(stage.startswith("python:3.11-slim") for stage in stages)
    last = stages[-1]
    assert re.search(r"^USER (?!root)\w+$", last, re.M)
    assert last.index("COPY deploy/entrypoint.sh") < last.index("USER ") < last.index("ENTRYPOINT")
    assert "requirements.lock" in last
    assert "--require-hashes" in last
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    java.chmod(0o755)
    script = str(DEPLOY / "entrypoint.sh")
    env = {
        "PATH": os.environ["PATH"],
        "JAVA_HOME": str(tmp_path),
        "SPARK_HOME": "/spark",
        "SPARK_JAVA_OPT_0": "-Dspark.driver.port=7078",
        "SPARK_JAVA_OPT_1": "-Dtold=two words",
        **{f"SPARK_{name}": name.lower() for name in EXECUTOR.values()},
    }
    said = subprocess.check_output(["sh", script, "executor"], env=env, text=True).splitlines()
    assert said[:2] == ["-Dspark.driver.port=7078", "-Dtold=two words"]
    assert said[2:4] == ["-Xmsexecutor_memory", "-Xmxexecutor_memory"]
    assert said[5] == "/spark/conf:/spark/jars/*"
    pairs = dict(zip(said[7::2], said[8::2], strict=True))
    assert pairs == {option: name.lower() for option, name in EXECUTOR.items() if option}
    driver = subprocess.check_output(["sh", script, "echo", "two words"], env=env, text=True)
    assert driver == "two words\n"


# How Spark tells an executor's pod what it is: the options of KubernetesExecutorBackend, and the variables.
EXECUTOR = {
    "": "EXECUTOR_MEMORY",
    "--driver-url": "DRIVER_URL",
    "--executor-id": "EXECUTOR_ID",
    "--cores": "EXECUTOR_CORES",
    "--app-id": "APPLICATION_ID",
    "--hostname": "EXECUTOR_POD_IP",
    "--resourceProfileId": "RESOURCE_PROFILE_ID",
    "--podName": "EXECUTOR_POD_NAME",
}


@pytest.fixture(scope="module")
def known() -> dict[str, set[str]]:
    """The metrics that there are, with the labels of their samples."""
    from millrace.capture import metrics as captures

    own = [value for value in vars(captures).values() if isinstance(value, Metric)]
    found = {metric.name: {"capture", "table"} for metric in own}
    for name, family in parsed(metrics("shop", [told()])).items():
        found[name] = {label for labels in family.samples for label, _ in labels}
    assert set(found) == {metric.name for metric in (*METRICS, *own)}
    return found


def expressions() -> Iterator[tuple[str, str, str]]:
    """(where, expression, what is shown of its labels)"""
    for group in yaml.safe_load(text("prometheus/millrace.rules.yml"))["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"], rule["annotations"]["summary"]
    for panel in json.loads(text("grafana/millrace.json"))["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"], target["legendFormat"]


def test_dashboard_and_alerts_ask_for_metrics_that_there_are(known: dict[str, set[str]]) -> None:
    asked: set[str] = set()
    for where, expression, shown in expressions():
        names = WORD.findall(expression)
        assert names, where
        assert set(names) <= set(known), where
        labels = set.union(*(known[name] for name in names))
        used = re.findall(r"\b(\w+)=~", expression) + re.findall(r"\bby \((\w+)\)", expression)
        used += re.findall(r"{{ ?(?:\$labels\.)?(\w+) ?}}", shown.replace("{{ $value }}", ""))
        assert set(used) <= labels, f"{where}: {set(used) - labels} is no label of {names}"
        for pair in ("()", "{}", "[]"):
            assert expression.count(pair[0]) == expression.count(pair[1]), where
        for name in names:  # a counter is asked for its growth, and nothing else is
            grows = re.search(rf"(rate|increase)\({name}\b", expression) is not None
            assert grows == name.endswith("_total"), f"{where}: {name}"
        asked |= set(names)
    assert {name for name in known if "sink" in name and "last_epoch" not in name} <= asked


def test_every_alert_says_what_to_do() -> None:
    (group,) = yaml.safe_load(text("prometheus/millrace.rules.yml"))["groups"]
    names = [rule["alert"] for rule in group["rules"]]
    assert len(names) == len(set(names)) > 10
    nouns = parser()._subparsers._group_actions[0].choices  # type: ignore[union-attr]
    for rule in group["rules"]:
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert set(rule["annotations"]) == {"summary", "action"}
        for noun in re.findall(r"\bmillrace (\w+)", rule["annotations"]["action"]):
            assert noun in nouns, rule["alert"]


def test_panels_stand_beside_each_other() -> None:
    board = json.loads(text("grafana/millrace.json"))
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
    assert [each["name"] for each in board["templating"]["list"]] == ["source", "app", "flow"]
