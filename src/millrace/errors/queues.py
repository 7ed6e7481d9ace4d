"""Queues: RabbitMQ, and what is drained from it."""

from __future__ import annotations

from millrace.errors.base import ServerError, UserError


class QueueServerUnreachable(ServerError):
    code = "MR-QUEUE-SERVER-UNREACHABLE"
    text = "RabbitMQ at {address} does not answer ({reason})"
    fix = "see that it runs, and that its address, user and password are right; nothing was taken from a queue"


class QueueUrlUnfit(UserError):
    code = "MR-QUEUE-URL-UNFIT"
    text = "the URL of {server} is not one of RabbitMQ"
    fix = "{remedy}"


class QueueUnknown(UserError):
    code = "MR-QUEUE-UNKNOWN"
    text = "there is no queue {queue!r} at RabbitMQ on {address} ({reason})"
    fix = "see that its name and the virtual host are right; whoever publishes to it, or reads it, declares it"


class QueueRefused(UserError):
    code = "MR-QUEUE-REFUSED"
    text = "RabbitMQ at {address} does not let queue {queue!r} be drained ({reason})"
    fix = "let the user read it, or name another queue; a queue that is exclusive to somebody cannot be drained"
