# The commands of the repository. The first screen is the help.
.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all test-fast lint format lock jars kernel wheel clean bench-log bench-kernel bench-capture bench-windows bench-lookup bench-match bench-nexmark bench-latency bench-enrich bench-operators bench-sinks bench-recovery bench-views bench-sizing torture crash bench-events bench-serving fuzz fuzz-flows known scale soak bench-fraud bench-lake fuzz-lake bench-leaderboard
BIN := .venv/bin
export PYTHON ?= python3

help: ## show this help
	@printf 'Millrace. The two commands: make demo, make test.\n\n'
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | awk -F '\t' '{ printf "  make %-12s %s\n", $$1, $$2 }'

setup: .venv/.ready ## install everything that the rest needs, into .venv
.venv/.ready: requirements.lock tools/uv.lock pyproject.toml tools/setup
	@tools/setup

demo: setup ## fraud, page views, leaderboard and shop together, with their consoles, until Ctrl-C (ONLY=fraud for one, ALL=1 for every one)
	@$(BIN)/millrace demo $(if $(ONLY),--only $(ONLY)) $(if $(ALL),--all)

test: setup lint ## run all tests, those with servers and those without side by side
	@tools/test

test-all: setup lint ## run all tests, also those that otherwise take turns from day to day
	@TEST_ALL=1 tools/test

test-fast: setup ## run the tests that need neither a server nor Spark
	@$(BIN)/pytest -m "not server and not spark" --quiet

lint: setup ## check style, types and the direction of imports
	@$(BIN)/ruff format --check --quiet . && $(BIN)/ruff check --quiet . && $(BIN)/mypy && $(BIN)/lint-imports

format: setup ## put the code into shape
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

lock: setup ## choose newer Python packages and write requirements.lock
	@$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --all-extras --group dev \
	  --generate-hashes --no-emit-index-url --no-annotate --no-header pyproject.toml -o requirements.lock

jars: setup ## choose the jars of tools/jars.toml anew and write jars.lock
	@$(BIN)/python tools/refresh_jars.py

kernel: setup ## compile the Java of kernel/ and capture/, which otherwise happens at first use
	@$(BIN)/python -c 'from millrace.local.compile import UNITS, compiled; print(*map(compiled, UNITS), sep="\n")'

wheel: kernel ## build the wheel into dist/, the compiled Java inside
	@$(BIN)/uv build --quiet --no-build-isolation --python $(BIN)/python --wheel --out-dir dist .

bench-kernel: setup ## latest-by-key in Java against the same in Python, on Spark
	@$(BIN)/uv pip install --quiet --python $(BIN)/python pyarrow && $(BIN)/python -m bench.kernel

bench-operators: setup ## each operator of the kernel beside Python and RocksDB alone
	@$(BIN)/uv pip install --quiet --python $(BIN)/python pyarrow 'pandas<3' && $(BIN)/python -m bench.operators

bench-capture: setup ## captures against Debezium with its defaults and against pg_recvlogical
	@$(BIN)/python -m bench.capture

bench-nexmark: setup ## Nexmark: Millrace against Flink SQL and against PySpark by hand (EVENTS=4000000)
	@$(BIN)/python -m bench.nexmark --events $(or $(EVENTS),4000000)

bench-latency: setup ## Kafka to Kafka in milliseconds: real time, epochs, Flink; about two hours (RATES=200,2000,10000 SHAPES=keyed EPOCHS=10 ENDS=10; IDLE=120: the CPU of flows that wait)
	@$(BIN)/python -m bench.latency $(if $(RATES),--rates $(RATES)) $(if $(SHAPES),--shapes $(SHAPES)) $(if $(EPOCHS),--epochs $(EPOCHS)) $(if $(ENDS),--ends $(ENDS)) $(if $(ENGINES),--engines $(ENGINES)) $(if $(IDLE),--idle $(IDLE))

bench-fraud: setup ## from a payment to its alert, in real time, against Flink (RATE=1000 CARDS=100000 SECONDS=120 EPOCH=60)
	@$(BIN)/python -m bench.fraud $(if $(RATE),--rate $(RATE)) $(if $(CARDS),--cards $(CARDS)) $(if $(SECONDS),--seconds $(SECONDS)) $(if $(EPOCH),--epoch $(EPOCH)) $(if $(ENGINES),--engines $(ENGINES))

bench-leaderboard: setup ## ten million players: the highest rate at which a change is visible within 2 s, beside bare ZADDs (PLAYERS=10000000 RATES=1000,5000 SECONDS=40)
	@$(BIN)/python -m bench.leaderboard $(if $(PLAYERS),--players $(PLAYERS)) $(if $(RATES),--rates $(RATES)) $(if $(SECONDS),--seconds $(SECONDS))

bench-windows: setup ## Millrace's windows against Spark's own, over the same topic
	@$(BIN)/python -m bench.windows

bench-match: setup ## patterns: the same answers as Flink's MATCH_RECOGNIZE
	@$(BIN)/python -m bench.match --events $(or $(EVENTS),20000)

bench-lookup: setup ## a lookup in a captured table against a broadcast join of one that does not change
	@$(BIN)/python -m bench.lookup

bench-enrich: setup ## events enriched from tables of 1 and 10 million rows that change
	@$(BIN)/python -m bench.enrich

bench-serving: setup ## `millrace serve`: rows pulled at 500 requests/s, changes pushed to 1,000 WebSockets (RATE=500 CLIENTS=1000)
	@$(BIN)/python -m bench.serving $(if $(RATE),--rate $(RATE)) $(if $(CLIENTS),--clients $(CLIENTS))

bench-events: setup ## the event store against the library eventsourcing, on the same PostgreSQL (COUNT=5000 STORED=50000000)
	@$(BIN)/python -m bench.events $(if $(COUNT),--count $(COUNT)) $(if $(STORED),--stored $(STORED))

torture: setup ## random changes and random kills of Connect, Kafka and PostgreSQL: SEEDS=200 by default
	@$(BIN)/python -m tests.capture.torture --seeds $(or $(SEEDS),200)

scale: setup ## one key with a million rows, and a million keys: what a row costs, and memory. ROWS=1000000 by default
	@$(BIN)/python -m tests.kernel.scale --rows $(or $(ROWS),1000000)

crash: setup ## the crash matrix: each process killed at each place, many times; goes on where it was. SEEDS=20 by default (CELLS="SINK_ OWED_": parts of their names; CHAIN=16 MINUTES=60)
	@$(BIN)/python -m tests.crash.matrix --seeds $(or $(SEEDS),20) $(if $(CHAIN),--chain $(CHAIN)) $(if $(MINUTES),--minutes $(MINUTES)) $(CELLS)

bench-sinks: setup ## each sink against the bare bulk client of its system, and what each guarantee costs
	@$(BIN)/uv pip install --quiet --python $(BIN)/python redis && $(BIN)/python -m bench.sinks.kafka && $(BIN)/python -m bench.sinks.stores && $(BIN)/python -m bench.sinks.guarantees

bench-lake: setup ## lakehouse tables against bare Parquet, deltalake's merge and rewriting (ROWS=1000000 CHURN=0.01 EPOCHS=12)
	@$(BIN)/python -m bench.lake $(if $(ROWS),--rows $(ROWS)) $(if $(CHURN),--churn $(CHURN)) $(if $(EPOCHS),--churn-epochs $(EPOCHS))

bench-recovery: setup ## kill -9 to caught up at 5,000 events/s, against Flink (RATE=5000 INTERVAL=1 KILLS=3)
	@$(BIN)/python -m bench.recovery $(if $(RATE),--rate $(RATE)) $(if $(INTERVAL),--interval $(INTERVAL)) $(if $(KILLS),--kills $(KILLS))

bench-views: setup ## a view: its freshness in store, by HTTP and WebSocket, in epochs and in real time; cost of a change at 10,000 to 1,000,000 rows; then bench-serving (SIZES= RATES=100,1000)
	@status=0; \
	$(BIN)/python -m bench.views $(if $(SIZES),--sizes $(SIZES)) $(if $(RATES),--rates $(RATES)) || status=1; \
	$(BIN)/python -m bench.views --mode realtime --sizes 10000 $(if $(RATES),--rates $(RATES)) --seconds 120 || status=1; \
	$(BIN)/python -m bench.serving || status=1; \
	exit $$status

bench-sizing: setup ## twenty views and ten sinks on one database: memory, state, CPU while nobody writes, freshness (ROWS=100000 VIEWS=5,20)
	@$(BIN)/python -m bench.sizing $(if $(ROWS),--rows $(ROWS)) $(if $(VIEWS),--views $(VIEWS))

soak: setup ## flows under an even load for hours: does anything grow? MINUTES=120 by default; PLOT=docs/soak.svg
	@$(BIN)/python -m tests.soak --minutes $(or $(MINUTES),120) $(if $(PLOT),--plot $(PLOT))

fuzz-lake: setup ## random epochs into lake tables, and random SQL on a captured database, every version compared with the table as it was: SEEDS=20 by default
	@$(BIN)/python -m tests.lakehouse.fuzz --seeds $(or $(SEEDS),20) && $(BIN)/python -m tests.lakehouse.fuzz_captured --seeds $(or $(SEEDS),20)

fuzz-flows: setup ## the same views as flows over captured tables, interrupted, at the same LSN: SEEDS=10 by default
	@$(BIN)/python -m tests.views.flows --seeds $(or $(SEEDS),10)

known: setup ## TPC-H's and Nexmark's queries as views of one run over tables that change, at the same LSN: SF=0.01 by default
	@$(BIN)/python -m tests.views.known --scale $(or $(SF),0.01)

fuzz: setup ## random views over random transactions, against PostgreSQL: SEEDS=200 by default, of 12 queries each
	@$(BIN)/python -m tests.views.fuzz --seeds $(or $(SEEDS),200)

bench-log: setup ## topic write and read against Kafka's own performance tools
	@$(BIN)/python -m bench.log

clean: ## delete what was set up and built here (servers first)
	@[ ! -x $(BIN)/millrace ] || $(BIN)/millrace down
	@rm -rf .venv dist build .mypy_cache .ruff_cache .hypothesis .import_linter_cache
