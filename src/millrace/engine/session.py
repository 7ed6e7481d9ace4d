"""One Spark session, set up as every flow needs it: state, time zone, workers, jars, and silence on the terminal.

What the JVM prints never reaches the terminal: its standard output and error are files from its first line on (a
log4j setting alone comes too late for what the launcher and the JVM itself print). It runs in a session of its own, so
that Ctrl-C and a SIGTERM to the process group reach Python only, which lets the epoch at hand end. The JVM ends by
itself when Python does, because it watches the pipe between them.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext, java_gateway
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from millrace import kernel
from millrace.config import Settings
from millrace.engine.shipping import packed
from millrace.errors import SessionElsewhere, SessionFailed
from millrace.local import jars, java

LOG_NAME = "spark.log"
CONSOLE_NAME = "spark-console.log"
MODULES_NAME = "modules.zip"
LOG_SIZE_MB = 20
LOG_FILES = 5
JVM_END_S = 15
JVM_DIE_S = 5

_logger = logging.getLogger("millrace.engine")

# On the way to a JVM that we started: where it logs.
_LOG = "millrace_log"

_STATE_STORE = "spark.sql.streaming.stateStore"
_LOCAL = re.compile(r"local(\[(\*|\d+)(,\s*\d+)?\])?$")
_SECRET = re.compile(r"password|secret|token|jaas|credential|\.key$", re.IGNORECASE)

_REDACTED = "(?i)url|secret|password|token|access[.]?key|jaas|certificate|keystore"

# All stores of a process share it, half of it for what is not on disk yet. Without a bound each store (one for each
# operator and partition) may take 64 MB twice for that alone, however many there are.
STATE_MEMORY_MB = 512

# For a cluster whose size is not configured: enough for a few executors, few enough for quick epochs. The number is
# pinned in a flow's checkpoint, so it is not derived from whatever executors happen to be there at the first start.
CLUSTER_PARTITIONS = 16


def session(settings: Settings, master: str | None = None, name: str = "millrace", slots: int = 0) -> SparkSession:
    """A session on `master` (default: the configured one), started when there is none; where the machine's cores are
    to be used (`local[*]`), with at least so many slots.

    A context that already runs in this process, somebody else's too, is used as it is: its master, its jars. Only the
    SQL settings that flows rely on are set, in a session of their own, so the other's stay untouched.
    """
    wanted = master or settings.spark.master
    running = SparkContext._active_spark_context
    if running is not None:
        if master is not None and running.master != master:
            raise SessionElsewhere(running=running.master, wanted=master)
        base = SparkSession.getActiveSession() or SparkSession(running)
        own = base.newSession()
        for key, value in {**_sql_options(wanted, settings), **_sql_only(settings.spark.revealed())}.items():
            own.conf.set(key, value)
        return own
    return _start(settings, wanted, name, slots)


def _start(settings: Settings, master: str, name: str, slots: int) -> SparkSession:
    executable = java.find()
    logs = log_folder(settings)
    scratch = _scratch(settings)
    os.environ["PYSPARK_PYTHON"], os.environ["PYSPARK_DRIVER_PYTHON"] = _python(settings, master), sys.executable
    if is_local(master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("JAVA_HOME", str(executable.resolve().parent.parent))
    found = [*jars.paths("spark"), kernel.jar()]
    options = {
        "spark.master": f"local[{slots}]" if master == "local[*]" and slots > (os.cpu_count() or 1) else master,
        "spark.app.name": name,
        "spark.jars": ",".join(path.as_uri() for path in found),
        **options_of(settings, master, scratch),
    }
    own_java = options.get("spark.driver.extraJavaOptions", "")
    options["spark.driver.extraJavaOptions"] = f"{_java_options(logs, scratch)} {own_java}".strip()
    conf = SparkConf(loadDefaults=False)
    for key, value in options.items():
        conf.set(key, value)
    _quiet_pyspark()
    if SparkContext._gateway is None:
        _launch(conf, logs, master)
    with _interrupts_kept():
        try:
            context = SparkContext(conf=conf)
        except Exception as error:
            raise SessionFailed(master=master, reason=_first_line(error), log=logs / LOG_NAME) from error
    _quiet_accumulators(context)
    if not is_local(master) and (modules := packed((Path.cwd(), settings.folder), scratch / MODULES_NAME)):
        context.addPyFile(str(modules))
    return SparkSession(context)


def _python(settings: Settings, master: str) -> str:
    """What runs Python in tasks. Spark would take `python3` from PATH, which need not be the one that has the user's
    packages. On a cluster it is at the driver's path, unless somebody says another one."""
    if is_local(master):
        return sys.executable
    named = settings.spark.revealed().get("spark.pyspark.python")
    return named or os.environ.get("PYSPARK_PYTHON") or sys.executable


def _quiet_pyspark() -> None:
    """PySpark prints the JVM's stack trace of every error that knows its place in a query to the terminal; the error
    itself says enough."""
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).handlers = [logging.NullHandler()]


def _quiet_accumulators(context: SparkContext) -> None:
    """A JVM that is killed hangs up on the thread that hears of its Python workers, which prints a traceback."""
    server: Any = context._accumulatorServer
    server.handle_error = lambda *_: _logger.debug("the JVM hung up", exc_info=True)


@contextlib.contextmanager
def _signals_deferred() -> Iterator[None]:
    """While the JVM starts, a signal waits until it is there: PySpark gives no handle to a half-started one, which
    would stay behind for ever. A second signal does not wait."""
    came: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        came.append(number)
        if len(came) > 1:
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        signal.raise_signal(came[0])


@contextlib.contextmanager
def _interrupts_kept() -> Iterator[None]:
    """A SparkContext makes Ctrl-C cancel all jobs, the epoch at hand among them: the handler from before stays."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def close(spark: SparkSession) -> None:
    """Ends the session and its JVM, and waits until the process is gone; one that was killed is gone already."""
    gateway: Any = SparkContext._gateway
    with contextlib.suppress(Py4JError, OSError):
        spark.stop()
    if gateway is None or gateway.proc is None:
        return
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    with contextlib.suppress(Py4JError, OSError):
        gateway.shutdown()
        gateway.proc.stdin.close()
    try:
        gateway.proc.wait(JVM_END_S)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()
        gateway.proc.wait()


def jvm_lives() -> bool:
    gateway: Any = SparkContext._gateway
    return gateway is not None and (gateway.proc is None or gateway.proc.poll() is None)


def has_ended(spark: SparkSession | None) -> bool:
    """Whether Spark is of no use any more: no flow could be started again."""
    return spark is None or not jvm_lives() or bool(spark.sparkContext._jsc.sc().isStopped())


def jvm_ended() -> bool:
    """Asked when a call into the JVM failed. One that was killed hangs up before it has ended, so it is given time."""
    gateway: Any = SparkContext._gateway
    if gateway is not None and gateway.proc is not None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            gateway.proc.wait(JVM_DIE_S)
    return not jvm_lives()


def kill() -> None:
    """Ends the JVM of this process at once, without a word to it: a call that was interrupted may have left the
    conversation in disorder. What it was writing is done again by the next run."""
    gateway: Any = SparkContext._gateway
    if gateway is None or gateway.proc is None:
        return
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    gateway.proc.kill()
    gateway.proc.wait()


def _launch(conf: SparkConf, logs: Path, master: str) -> None:
    """Starts the JVM. What is secret among the options is left out here: a command line can be read by all."""
    visible = SparkConf(loadDefaults=False)
    for key, value in conf.getAll():
        if not _SECRET.search(key):
            visible.set(key, value)
    console = logs / CONSOLE_NAME
    with console.open("ab") as output, _signals_deferred():
        try:
            launch: Any = java_gateway.launch_gateway
            gateway = launch(visible, {"stdout": output, "stderr": output, "start_new_session": True})
        except Exception as error:
            raise SessionFailed(master=master, reason=_first_line(error), log=console) from error
        setattr(gateway, _LOG, logs / LOG_NAME)
        SparkContext._gateway, SparkContext._jvm = gateway, gateway.jvm


def options_of(settings: Settings, master: str, scratch: Path) -> dict[str, str]:
    """What a session is started with. What the user says comes last."""
    return {**_core_options(master, scratch), **_sql_options(master, settings), **settings.spark.revealed()}


def _core_options(master: str, scratch: Path) -> dict[str, str]:
    options = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.warehouse.dir": (scratch / "warehouse").as_uri(),
        "spark.speculation": "false",
        # A flow with a long epoch must not keep the others waiting; each runs in a pool of its own.
        "spark.scheduler.mode": "FAIR",
        # How long a real-time flow's rows wait for others at a shuffle: with Spark's 50 that is most of its latency.
        "spark.shuffle.streaming.networkBufferMaxWaitTimeMs": "1",
        # The code that Spark has generated for a plan is kept for the next epoch. The default holds that of some ten
        # flows; with more, each epoch would compile anew what another one has pushed out, and run it cold.
        "spark.sql.codegen.cache.maxEntries": "2000",
        # What Spark shows of options: Kafka's logins are among them.
        "spark.redaction.regex": _REDACTED,
        "spark.sql.redaction.options.regex": _REDACTED,
    }
    if is_local(master):
        options |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.local.dir": str(scratch),
        }
    return options


def _sql_options(master: str, settings: Settings) -> dict[str, str]:
    state = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    return {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(partitions(master, settings.spark.revealed())),
        f"{_STATE_STORE}.providerClass": state,
        f"{_STATE_STORE}.rocksdb.changelogCheckpointing.enabled": "true",
        f"{_STATE_STORE}.rocksdb.boundedMemoryUsage": "true",
        f"{_STATE_STORE}.rocksdb.maxMemoryUsageMB": str(STATE_MEMORY_MB),
        # Real-time mode refuses format 1, and a checkpoint cannot change its format later.
        f"{_STATE_STORE}.checkpointFormatVersion": "2",
        # Joins keep rows by time in one store. The default has four stores a partition, and looks through all rows
        # that it keeps in every epoch for those whose time is over. A checkpoint keeps the format it began with.
        "spark.sql.streaming.join.stateFormatVersion": "4",
        # Spark's own start a process for every file. Checkpoints are always paths of a mounted file system here.
        "spark.sql.streaming.checkpointFileManagerClass": "millrace.kernel.CheckpointFiles",
        # How Spark describes the plan of every epoch, twice, to a UI that is off.
        "spark.sql.ui.explainMode": "simple",
    }


def _sql_only(options: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in options.items() if key.startswith("spark.sql.streaming.")}


def partitions(master: str, options: Mapping[str, str]) -> int:
    """Shuffle partitions: one task a core. Each costs a state store and time at every epoch's end."""
    if is_local(master):
        match = _LOCAL.match(master)
        count = match[2] if match else None
        cores = (os.cpu_count() or 1) if count == "*" else int(count or 1)
        return max(2, cores)
    instances, cores_each = options.get("spark.executor.instances"), options.get("spark.executor.cores")
    return max(2, int(instances) * int(cores_each)) if instances and cores_each else CLUSTER_PARTITIONS


def is_local(master: str) -> bool:
    return _LOCAL.match(master) is not None


def log_folder(settings: Settings) -> Path:
    folder = settings.state_folder / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def log_file(settings: Settings) -> Path:
    """Where Spark's own words go; errors name it for the details. A session may have been started with other settings,
    as a test's is: then it is where that one writes."""
    own: Path | None = getattr(SparkContext._gateway, _LOG, None)
    return own or log_folder(settings) / LOG_NAME


def _java_options(logs: Path, scratch: Path) -> str:
    config = logs / "log4j2.properties"
    config.write_text(_LOG4J.format(file=logs / LOG_NAME, size_mb=LOG_SIZE_MB, files=LOG_FILES - 1), encoding="utf-8")
    # Native libraries unpack themselves into the temporary folder and stay there after kill -9: into ours, which is
    # swept.
    values = (
        f"-Dlog4j2.configurationFile={config.as_uri()}",
        f"-Djava.io.tmpdir={scratch}",
        "-Djava.net.preferIPv4Stack=true",
    )
    return " ".join(f'"{value}"' for value in values)


def _scratch(settings: Settings) -> Path:
    """A folder for this process's temporary files, after sweeping those of processes of this host that are gone."""
    root = settings.state_folder / "spark"
    host = socket.gethostname()
    root.mkdir(parents=True, exist_ok=True)
    for folder in root.iterdir():
        owner, _, pid = folder.name.rpartition("-")
        if owner == host and pid.isdigit() and not _alive(int(pid)):
            shutil.rmtree(folder, ignore_errors=True)
    own = root / f"{host}-{os.getpid()}"
    own.mkdir(exist_ok=True)
    return own


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).partition("\n")[0][:300]


_LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
# Said every time an epoch takes longer than the trigger's interval; the run's own progress says how long they take.
logger.trigger.name = org.apache.spark.sql.execution.streaming.runtime.ProcessingTimeExecutor
logger.trigger.level = error
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {file}
appender.file.filePattern = {file}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd HH:mm:ss.SSS}} %-5p %c{{1}}: %m%n%ex
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = {size_mb}MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = {files}
"""
