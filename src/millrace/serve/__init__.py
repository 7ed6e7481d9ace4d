"""What is told over HTTP and WebSocket: metrics and health of a run, and the server of `millrace serve`: views pulled
and pushed, queries, events in and out. It reads the view store, the log and how flows stand, and never Spark.

Nothing is imported here: a run needs `http` alone, and the server should not load what runs flows.
"""
