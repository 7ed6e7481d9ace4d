"""The lakehouse: its tables, their versions, and questions to them."""

from __future__ import annotations

from millrace.errors.base import ServerError, UserError


class LakeConflict(ServerError):
    code = "MR-LAKE-CONFLICT"
    text = "the next version of lake table {table!r} could not be committed: {reason}"
    fix = "nothing has changed; it is tried again on what the other one wrote"


class LakeTaken(UserError):
    code = "MR-LAKE-TAKEN"
    text = "sink {sink!r} is to write to the lake table {table!r}, which {flow} writes"
    fix = "name another table, or move that one away"


class LakeCatalogUnreachable(ServerError):
    code = "MR-LAKE-CATALOG-UNREACHABLE"
    text = "the catalog of the Iceberg tables does not answer ({reason})"
    fix = "start it, with `millrace up postgres` if it is the project's own, or mend [lake] catalog in millrace.toml"


class LakeCatalogRefused(UserError):
    code = "MR-LAKE-CATALOG-REFUSED"
    text = "the catalog of the Iceberg tables refuses this: {reason}"
    fix = "set MILLRACE_LAKE_TOKEN, or the variable that [lake] token names, to one that the catalog takes"


class LakeCatalogFailed(ServerError):
    code = "MR-LAKE-CATALOG-FAILED"
    text = "the catalog of the Iceberg tables did not do what lake table {table!r} needs ({reason})"
    fix = "see what it says itself, or name another one as [lake] catalog in millrace.toml"


class LakeTableAway(ServerError):
    code = "MR-LAKE-TABLE-AWAY"
    text = "the catalog knows lake table {table!r}, and it cannot be loaded: {reason}"
    fix = (
        "nothing was changed; bring back the disk or share that it is on, or, if its files are gone for good, build it "
        "again with `millrace rebuild`, name another table, or let the catalog forget this one"
    )


class LakeTableElsewhere(UserError):
    code = "MR-LAKE-TABLE-ELSEWHERE"
    text = "the catalog knows lake table {table!r} at {there}, and this project's would be at {here}"
    fix = "name another table, or another [lake] catalog in millrace.toml: that one is another project's, or was moved"


class LakeKeysMissing(UserError):
    code = "MR-LAKE-KEYS-MISSING"
    text = "the lake is in {url}, and the environment has no {names}"
    fix = "set both for this process and, on a cluster, for its executors"


class LakeStoreUnreachable(ServerError):
    code = "MR-LAKE-STORE-UNREACHABLE"
    text = "the lake at {url} cannot be reached ({reason})"
    fix = "see whether the bucket is there and the keys of the environment may use it, and mend [lake] in millrace.toml"


class LakeTableUnknown(UserError):
    code = "MR-LAKE-TABLE-UNKNOWN"
    text = "the lake has no table {table!r}{hint}"
    fix = "`millrace lake list` shows those that it has"


class LakeTableUncatalogued(UserError):
    code = "MR-LAKE-TABLE-UNCATALOGUED"
    text = "the lake has a folder {table!r}, and the catalog knows no such table"
    fix = "name the catalog that knows it as [lake] catalog in millrace.toml, or remove the folder"


class LakeVersionUnknown(UserError):
    code = "MR-LAKE-VERSION-UNKNOWN"
    text = "lake table {table!r} has no version for {asked}: {reason}"
    fix = "`millrace lake history {table}` shows those that it has"


class LakePositionUnknown(UserError):
    code = "MR-LAKE-POSITION-UNKNOWN"
    text = "topic {topic!r} does not say what was committed by LSN {lsn}: {reason}"
    fix = (
        "if it is to come that far, wait until its capture has (`millrace capture status`); otherwise ask by --time or "
        "--offset"
    )


class LakeNotPlain(UserError):
    code = "MR-LAKE-NOT-PLAIN"
    text = (
        "lake table {table!r} cannot be read by a flow: another program marked rows of its files as gone, or gave its "
        "columns other names"
    )
    fix = "let that program write the table's files anew, or ask the table with `millrace lake query`"


class LakeNotAppended(UserError):
    code = "MR-LAKE-NOT-APPENDED"
    text = "version {version} of lake table {table!r} takes rows away, and a stream of it could not say which"
    fix = (
        "let only tables flow that rows are added to; of one with a key, read its source, or the table beside a stream"
    )


class LakeFollowingFailed(ServerError):
    code = "MR-LAKE-FOLLOWING-FAILED"
    text = "what is appended to lake table {table!r} could not be read ({reason})"
    fix = "it is tried again; see whether the table's files and its catalog can be reached"


class LakeFollowingGap(UserError):
    code = "MR-LAKE-FOLLOWING-GAP"
    text = "topic {topic!r} follows lake table {table!r} up to version {version}, which is gone: it has {known}"
    fix = "delete the topic and start the app with --fresh, and keep versions for longer (`keep`) than it stands still"


class LakeQueryInvalid(UserError):
    code = "MR-LAKE-QUERY-INVALID"
    text = "DuckDB does not take this query: {reason}"
    fix = "{remedy}"


class LakeQueryTooSlow(UserError):
    code = "MR-LAKE-QUERY-TOO-SLOW"
    text = "the query took more than {seconds} s"
    fix = "ask for less; `millrace lake query` takes its time"


class LakeMomentInvalid(UserError):
    code = "MR-LAKE-MOMENT-INVALID"
    text = "{given!r} is neither a version nor a time"
    fix = 'write newest, the number of a version, a time like 2026-01-31T12:00, or "10 minutes ago"'


class ArchiveGap(UserError):
    code = "MR-ARCHIVE-GAP"
    text = (
        "offsets {first} to {end} of partition {partition} of topic {topic!r} are in no archive, and Kafka no longer "
        "has them"
    )
    fix = "archive the rest into another table, and more often than records expire"


class ArchiveMissing(UserError):
    code = "MR-ARCHIVE-MISSING"
    text = "the lake has no archive of topic {topic!r}, which would be its table {table!r}"
    fix = "make it with `millrace lake archive {topic}`, without --table: a replay looks for that name alone"


class ArchiveUnfit(UserError):
    code = "MR-ARCHIVE-UNFIT"
    text = "lake table {table!r} does not fit topic {topic!r}: {reason}"
    fix = "name another one"
