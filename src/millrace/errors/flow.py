"""Definitions: apps, topics, streams."""

from __future__ import annotations

from millrace.errors.base import UserError


class NameInvalid(UserError):
    code = "MR-NAME-INVALID"
    text = "{kind} cannot be named {name!r}"
    fix = "begin with a letter, then letters, digits, '.', '-' and '_', {longest} characters at most"


class NameTaken(UserError):
    code = "MR-NAME-TAKEN"
    text = "{name!r} is already the name of a {kind}, made at {first}"
    fix = "give one of them another name, or `to=` to write to a topic that exists"


class InputMissing(UserError):
    code = "MR-INPUT-MISSING"
    text = "{name!r} has no input"
    fix = "name the topics or streams that it reads: @app.stream(pageviews)"


class InputUnknown(UserError):
    code = "MR-INPUT-UNKNOWN"
    text = "{name!r} is given {given}, which is not a topic or a stream{hint}"
    fix = "give the object that `app.topic(…)` or `@app.stream(…)` made, without quotes"


class InputStill(UserError):
    code = "MR-INPUT-STILL"
    text = "{name!r} reads lake tables alone, which stand still while a flow runs"
    fix = (
        "give it a topic, table or stream too, or let what is appended to the table flow: "
        'app.lake("orders", "id long, …"); to have the past of a topic flow again, archive it and use '
        "`millrace run --from lake`, or `millrace lake restore`"
    )


class InputForeign(UserError):
    code = "MR-INPUT-FOREIGN"
    text = "{name!r} of app {app!r} is given {given!r}, which belongs to another app"
    fix = "declare the topic in this app too: app.topic({given!r}, …)"


class SchemaMissing(UserError):
    code = "MR-SCHEMA-MISSING"
    text = "{name!r} is read but has no schema"
    fix = "add its columns where it is defined, for example {example}"


class SchemaInvalid(UserError):
    code = "MR-SCHEMA-INVALID"
    text = "the schema of {name!r} does not read as columns: {reason}"
    fix = 'write it as "url string, user long, at timestamp"'


class LatenessMissing(UserError):
    code = "MR-LATENESS-MISSING"
    text = "{name!r} has an event time but does not say how late an event may come"
    fix = 'add lateness="10 seconds": how far the clock of its events stays behind the newest one'


class TimeMissing(UserError):
    code = "MR-TIME-MISSING"
    text = "{name!r} has a lateness but does not say which column is its event time"
    fix = 'add time="at", the name of a timestamp column'


class TimeInvalid(UserError):
    code = "MR-TIME-INVALID"
    text = "the event time of {name!r} is {column!r}, which {reason}{hint}"
    fix = "name a column of its schema that is a timestamp"


class TimeUnknown(UserError):
    code = "MR-TIME-UNKNOWN"
    text = "{name!r} does not know when its rows happened: columns with an event time: {found}"
    fix = "keep the topic's time column as it is in what comes before; of several, name one: time= (times= of a join)"


class LateSideOutside(UserError):
    code = "MR-LATE-SIDE-OUTSIDE"
    text = "late rows are to go to the topic {topic!r}, but this {operator!r} is not part of an app's stream"
    fix = "use it inside a function of @app.stream, or choose mr.late.drop() or .allow(…)"


class CycleFound(UserError):
    code = "MR-CYCLE-FOUND"
    text = "{name!r} feeds itself: {path}"
    fix = "write to another topic"


class ParametersInvalid(UserError):
    code = "MR-PARAMETERS-INVALID"
    text = "{name!r} {takes}, but {gives}"
    fix = "{remedy}"


class OptionInvalid(UserError):
    code = "MR-OPTION-INVALID"
    text = "{name!r} has {option}={given!r}"
    fix = "{remedy}"


class PatternInvalid(UserError):
    code = "MR-PATTERN-INVALID"
    text = "the pattern {pattern!r} does not read at character {at}: {reason}"
    fix = "{remedy}"


class StageRefused(UserError):
    code = "MR-STAGE-REFUSED"
    text = "the stage {stage!r} of the model is a {kind}, which cannot become columns"
    fix = "{known} can; compute what it does in columns before, or score with Spark ML itself"


class AppUnset(UserError):
    code = "MR-APP-UNSET"
    text = "no app was named, and {file} names none"
    fix = 'give it as `module:app`, or write [run] app = "module:app" there'


class AppReference(UserError):
    code = "MR-APP-REFERENCE"
    text = "{reference!r} does not name an app"
    fix = "write it as `module:name`, for example `shop:app` for `app` in shop.py"


class ModuleMissing(UserError):
    code = "MR-MODULE-MISSING"
    text = "there is no module {module!r} in {folder}{hint}"
    fix = "name the Python file that defines the app, without .py"


class ModuleFailed(UserError):
    code = "MR-MODULE-FAILED"
    text = "{module!r} fails while it is imported ({kind}: {reason})"
    fix = "mend that line"


class AppMissing(UserError):
    code = "MR-APP-MISSING"
    text = "{module!r} has no {attribute!r}{hint}"
    fix = "{remedy}"


class NotAnApp(UserError):
    code = "MR-NOT-AN-APP"
    text = "{reference!r} is a {kind}, not an App"
    fix = 'name the variable that holds mr.App("…")'


class FlowUnknown(UserError):
    code = "MR-FLOW-UNKNOWN"
    text = "app {app!r} has no {kind} named {name!r}{hint}"
    fix = "choose from {known}"
