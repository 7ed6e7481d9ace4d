"""What is told over HTTP and WebSocket: by a run, and by `millrace serve`."""

from __future__ import annotations

from millrace.errors.base import ServerError, UserError


class MetricsUnservable(UserError):
    code = "MR-METRICS-UNSERVABLE"
    text = "metrics cannot be served on {address} ({reason})"
    fix = "choose another port: --metrics PORT, or [run] metrics"


class AddressUnservable(UserError):
    code = "MR-ADDRESS-UNSERVABLE"
    text = "nothing can be served on {address} ({reason})"
    fix = "choose another port: --listen PORT"


class ServeUnguarded(UserError):
    code = "MR-SERVE-UNGUARDED"
    text = "{address} can be reached from other machines, and there is no token that anybody would need"
    fix = "`millrace token create NAME --scope view:NAME` first, or serve on 127.0.0.1"


class RequestInvalid(UserError):
    code = "MR-REQUEST-INVALID"
    text = "{parameter} cannot be {given!r}: {reason}"
    fix = "{remedy}"


class BodyUnreadable(UserError):
    code = "MR-BODY-UNREADABLE"
    text = "the body of the request is refused: {reason}"
    fix = "send JSON, with the header Content-Type: application/json"


class BodyTooLarge(UserError):
    code = "MR-BODY-TOO-LARGE"
    text = "the body of the request has more than {limit_bytes} bytes"
    fix = "send it in smaller parts"


class BodyTooSlow(UserError):
    code = "MR-BODY-TOO-SLOW"
    text = "the body of the request was not there after {seconds} s"
    fix = "send it in smaller parts"


class RequestsExceeded(UserError):
    code = "MR-REQUESTS-EXCEEDED"
    text = "there were more than {limit} requests a second"
    fix = "ask less often, or raise [serve] requests_per_s"


class SocketsExceeded(ServerError):
    code = "MR-SOCKETS-EXCEEDED"
    text = "there are {limit} open WebSockets already"
    fix = "try again later, or raise [serve] sockets"


class ServerBusy(ServerError):
    code = "MR-SERVER-BUSY"
    text = "nothing was free for this within {seconds} s"
    fix = "try again later"


class PathUnknown(UserError):
    code = "MR-PATH-UNKNOWN"
    text = "nothing answers {method} {path}"
    fix = "/openapi.json lists what does"


class TokenMissing(UserError):
    code = "MR-TOKEN-MISSING"
    text = "this needs a token"
    fix = "send it as Authorization: Bearer TOKEN; `millrace token create` makes one"


class TokenInvalid(UserError):
    code = "MR-TOKEN-INVALID"
    text = "the token is none of those that are known here"
    fix = "see `millrace token list`: it may have been revoked"


class TokenExpired(UserError):
    code = "MR-TOKEN-EXPIRED"
    text = "the token expired at {at}"
    fix = "make another one: `millrace token create`"


class ScopeMissing(UserError):
    code = "MR-SCOPE-MISSING"
    text = "the token does not have the scope {scope}"
    fix = "make one that has it: `millrace token create NAME --scope {scope}`"


class ScopeInvalid(UserError):
    code = "MR-SCOPE-INVALID"
    text = "{scope!r} is not a scope"
    fix = "write view:NAME, send:TOPIC, tail:TOPIC (* for all of them), query, status or console"


class TokenExists(UserError):
    code = "MR-TOKEN-EXISTS"
    text = "there is a token named {name!r} already"
    fix = "choose another name, or `millrace token revoke {name}` first"


class TokenUnknown(UserError):
    code = "MR-TOKEN-UNKNOWN"
    text = "there is no token named {name!r}{hint}"
    fix = "`millrace token list` shows them"


class TokensUnreadable(UserError):
    code = "MR-TOKENS-UNREADABLE"
    text = "the file of tokens {file} cannot be read ({reason})"
    fix = "mend it, or delete it and make tokens anew: `millrace token create`"


class OriginForeign(UserError):
    code = "MR-ORIGIN-FOREIGN"
    text = "pages of {origin} may not call this server"
    fix = "name them under [serve] origins if they should"


class HostForeign(UserError):
    code = "MR-HOST-FOREIGN"
    text = "this server does not answer to the name {host!r}"
    fix = "name it under [serve] hosts if it should"


class RowUnknown(UserError):
    code = "MR-ROW-UNKNOWN"
    text = "the view {view!r} has no row with the key {key}"
    fix = "see that the key is right; one of several columns is written as several parts of the path"


class ViewUnfilled(ServerError):
    code = "MR-VIEW-UNFILLED"
    text = "the view {view!r} is not filled yet"
    fix = "see that its app runs (`millrace status`), and wait until it has read its tables"


class SnapshotTooLarge(UserError):
    code = "MR-SNAPSHOT-TOO-LARGE"
    text = "the view {view!r} has more than the {limit_rows} rows of a snapshot"
    fix = "ask for some of its rows (COLUMN=VALUE), or read its changelog topic"


class TailUnready(ServerError):
    code = "MR-TAIL-UNREADY"
    text = "reading the topic {topic!r} had not begun after {seconds} s"
    fix = "see that Kafka answers (`millrace topic list`), and try again later"


class RecordsMissed(ServerError):
    code = "MR-RECORDS-MISSED"
    text = "records of the topic {topic!r} were missed: {reason}"
    fix = "read them from the topic if they matter, and tail it again, from now on"


class QueryRefused(UserError):
    code = "MR-QUERY-REFUSED"
    text = "the query is refused: {reason}"
    fix = "send one SELECT over the views of this app"


class QueryTooSlow(UserError):
    code = "MR-QUERY-TOO-SLOW"
    text = "the query was not done after {seconds} s"
    fix = "ask for less, or make a view of it"


class QueryTooLarge(UserError):
    code = "MR-QUERY-TOO-LARGE"
    text = "the answer has more than {limit_bytes} bytes"
    fix = "ask for fewer rows or columns"


class QueryUnsafe(UserError):
    code = "MR-QUERY-UNSAFE"
    text = "queries are not offered: {reason}"
    fix = "name a role that may read the schema {schema} and nothing else: [views] read_url"


class EventUnfit(UserError):
    code = "MR-EVENT-UNFIT"
    text = "event {number} does not fit the topic {topic!r}: {reason}"
    fix = "nothing of this request was written; mend the event and send it again"


class IdempotencyKeyReused(UserError):
    code = "MR-IDEMPOTENCY-KEY-REUSED"
    text = "the Idempotency-Key {key!r} was used with other events before"
    fix = "choose a new one for other events"


class ServeRefused(UserError):
    code = "MR-SERVE-REFUSED"
    text = "the server answered {status}: {reason}"
    fix = "see docs/guide/serve.md"


class ServeUnreachable(ServerError):
    code = "MR-SERVE-UNREACHABLE"
    text = "the server at {address} does not answer ({reason})"
    fix = "see that `millrace serve` runs there"
