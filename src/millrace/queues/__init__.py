"""RabbitMQ's queues: how they are reached, and how one is drained into a topic. No Spark; what feeds a queue is a sink.

A queue forgets what was acknowledged, and a topic keeps it: so a queue is drained first, and then read as a topic.
"""
