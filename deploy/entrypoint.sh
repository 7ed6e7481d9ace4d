#!/bin/sh
# The image's first process. As a driver it runs what it is told (`millrace run`); Kubernetes' executors are started with
# the one word `executor`, and Spark says everything else in variables.
set -eu
if [ "${1:-}" != executor ]; then
  exec "$@"
fi
# SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1, …: each an argument of its own, with whatever blanks are in it.
shift
number=0
while eval "[ -n \"\${SPARK_JAVA_OPT_$number+there}\" ]"; do
  eval "set -- \"\$@\" \"\$SPARK_JAVA_OPT_$number\""
  number=$((number + 1))
done
exec "$JAVA_HOME/bin/java" "$@" \
  "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
  -cp "${SPARK_CONF_DIR:-$SPARK_HOME/conf}:$SPARK_HOME/jars/*" \
  org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
  --driver-url "$SPARK_DRIVER_URL" \
  --executor-id "$SPARK_EXECUTOR_ID" \
  --cores "$SPARK_EXECUTOR_CORES" \
  --app-id "$SPARK_APPLICATION_ID" \
  --hostname "$SPARK_EXECUTOR_POD_IP" \
  --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
  --podName "$SPARK_EXECUTOR_POD_NAME"
