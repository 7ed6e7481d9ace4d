"""Event sourcing: events, aggregates, the event store, projections."""

from __future__ import annotations

from millrace.errors.base import ServerError, UserError


class EventInvalid(UserError):
    code = "MR-EVENT-INVALID"
    text = "event {event!r} cannot be kept: {reason}"
    fix = "{remedy}"


class EventNameTaken(UserError):
    code = "MR-EVENT-NAME-TAKEN"
    text = "{first} and {second} are both events of the name {name!r}"
    fix = 'give one of them another: @event(name="…"); it is what the store knows them by'


class EventUnknown(UserError):
    code = "MR-EVENT-UNKNOWN"
    text = "the store holds an event {type!r} at position {position}, which this code does not know{hint}"
    fix = "events are never passed over: define it again, or run the version of the code that wrote it"


class EventFromFuture(UserError):
    code = "MR-EVENT-FROM-FUTURE"
    text = "the store holds version {found} of event {type!r}, and this code knows it up to version {known}"
    fix = "newer code wrote it: run that version or a later one"


class EventUnreadable(UserError):
    code = "MR-EVENT-UNREADABLE"
    text = "the event {type!r} (version {version}) at position {position} cannot be read: {reason}"
    fix = "mend the upcaster that leads to the class, or the class; the event itself stays as it was written"


class AggregateInvalid(UserError):
    code = "MR-AGGREGATE-INVALID"
    text = "aggregate {aggregate!r} cannot be used: {reason}"
    fix = "{remedy}"


class AggregateMisused(UserError):
    code = "MR-AGGREGATE-MISUSED"
    text = "aggregate {aggregate!r} does not do that: {reason}"
    fix = "a @command checks and then emits; only an @apply changes state"


class AggregateUnknown(UserError):
    code = "MR-AGGREGATE-UNKNOWN"
    text = "there is no {aggregate} {id!r}{when}"
    fix = "a new one is made by its class, {aggregate}({id!r}), and kept by `save`"


class ConflictFound(UserError):
    code = "MR-CONFLICT-FOUND"
    text = "{aggregate} {id!r} is at version {found}, not at {expected}: somebody else changed it meanwhile"
    fix = "load it again and decide anew; `repository.change(…)` does so by itself"


class ConflictLasting(ConflictFound):
    code = "MR-CONFLICT-LASTING"
    text = "somebody else changed {aggregate} {id!r} each of the {attempts} times that this was tried: nothing is saved"
    fix = "many write to one aggregate: try again later, let one process write to it, or divide it into smaller ones"


class StoreMisused(UserError):
    code = "MR-STORE-MISUSED"
    text = "{what} cannot be {given}: {reason}"
    fix = "{remedy}"


class SealBroken(UserError):
    code = "MR-SEAL-BROKEN"
    text = "the personal field {field!r} at position {position} does not open with its key"
    fix = "somebody changed the row or the key: compare both with a backup"


class StoreUnknown(UserError):
    code = "MR-STORE-UNKNOWN"
    text = "there is no event store in schema {schema!r} of database {name!r}{hint}"
    fix = "name the database, as `Store.open` does; the store is made when it is first opened"


class StoreFormUnknown(UserError):
    code = "MR-STORE-FORM-UNKNOWN"
    text = "the event store in schema {schema!r} of {database!r} has form {found}; this version knows {known}"
    fix = "use the version of Millrace that made it, or a newer one"


class PositionGap(ServerError):
    code = "MR-POSITION-GAP"
    text = "after position {after} of the event store comes {found}: events between them are missing"
    fix = "somebody deleted rows, or wrote some without `append`: restore them from a backup"


class ProjectionInvalid(UserError):
    code = "MR-PROJECTION-INVALID"
    text = "{name!r} cannot be a projection or saga: {reason}"
    fix = "{remedy}"


class ProjectionBehind(ServerError):
    code = "MR-PROJECTION-BEHIND"
    text = "projection {name!r} has come to position {position} and not to {wanted} within {seconds} s"
    fix = (
        "see whether the process that runs it is alive, and what it says; `projection.lag()` tells how far it is behind"
    )


class ProjectionChanged(UserError):
    code = "MR-PROJECTION-CHANGED"
    text = "projection {name!r} was made by other code than this: its tables are not what this code would make"
    fix = "`projection.rebuild()` makes them anew beside the old ones, and switches"


class ExpectationMissed(UserError):
    code = "MR-EXPECTATION-MISSED"
    text = "{what}"
    fix = "given these events, the command did otherwise than the test says"


class RegistryUnreadable(UserError):
    code = "MR-REGISTRY-UNREADABLE"
    text = "the registry of events {file} cannot be read ({reason})"
    fix = "put it back as it was committed; `millrace events check MODULE --write` writes one where there is none"
