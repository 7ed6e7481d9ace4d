"""Runs what it is told on Flink, in Flink's own environment: a request a line on standard input, an answer a line on
standard output. It imports nothing but PyFlink.

The first request is {"options": {…}, "jars": […], "tables": […]}. Each other one is {"insert": "…", "after": ["…"]},
which is answered when the job has ended; or {"start": ["…", …]}, tables to make and at last the statement of a job
that does not end by itself, which is answered when it runs; or {"stop": true}, which ends that one.
"""

import json
import os
import sys
import time

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment

# What Flink itself prints must not be taken for an answer.
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)


def answer(**words):
    answers.write(json.dumps(words) + "\n")
    answers.flush()


def main():
    first = json.loads(sys.stdin.readline())
    options = Configuration()
    for key, value in first["options"].items():
        options.set_string(key, value)
    options.set_string("pipeline.jars", ";".join(first["jars"]))
    settings = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(options).build()
    tables = TableEnvironment.create(settings)
    for statement in first["tables"]:
        tables.execute_sql(statement)
    answer(ready=True)
    job = None
    for line in sys.stdin:
        request = json.loads(line)
        started = time.monotonic()
        if "start" in request:
            *made, statement = request["start"]
            for each in made:
                tables.execute_sql(each)
            job = tables.execute_sql(statement).get_job_client()
            answer(running=True)
        elif "stop" in request:
            job.cancel().result()
            answer(running=False)
        else:
            tables.execute_sql(request["insert"]).wait()
            answer(seconds=time.monotonic() - started)
            for statement in request["after"]:
                tables.execute_sql(statement)


main()
