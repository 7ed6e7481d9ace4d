"""From the stack trace of a failed connector to a sentence with a remedy."""

from __future__ import annotations

import re

_CAUSED = re.compile(r"^(?:Caused by: )?([\w.$]+(?:Exception|Error)): ?(.*)$", re.MULTILINE)
_AGAIN = "mend that, then `millrace capture resume {name}`"

# A piece of the trace, what it means, and what to do. The first that fits counts.
_KNOWN = (
    (
        re.compile(r"replication slot .* (does not exist|no longer)"
                   r"|can no longer (access|get changes from) replication slot|no longer available on the server"
                   r"|slot .*invalidated|requested WAL segment"
                   r"|Could not find (first log file|GTID state)|binlog files? .*purged|purged .*binary logs?", re.I),
        "the replication slot no longer holds the changes that are to be read next",
        "`millrace capture snapshot {name} --repair` reads the tables again and removes rows deleted meanwhile",
    ),
    (
        re.compile(r"password authentication failed|no password was provided|no pg_hba.conf entry|Access denied for"),
        "the database does not let the connector log in",
        "check the user and password of the database's URL, then `millrace capture add` again",
    ),
    (
        re.compile(r"RecordTooLarge|message too large|max\.request\.size", re.I),
        "a row is larger than the largest record that a captured topic takes",
        "leave its large column out (exclude=…), then `millrace capture resume {name}`",
    ),
    (
        re.compile(r"publication .* does not exist", re.I),
        "the publication is gone, and changes since then were not sent",
        "`millrace capture snapshot {name} --repair` makes it again and reads the tables again",
    ),
    (
        re.compile(r"replication slot .* is active", re.I),
        "somebody else reads from the replication slot",
        "stop that reader, then `millrace capture resume {name}`",
    ),
)  # fmt: skip


def told(name: str, trace: str) -> tuple[str, str]:
    """Reason and remedy."""
    for pattern, reason, remedy in _KNOWN:
        if pattern.search(trace):
            return reason, remedy.format(name=name)
    causes = _CAUSED.findall(trace)
    kind, text = causes[-1] if causes else ("", trace.strip().partition("\n")[0])
    words = " ".join(text.split())[:300] or kind.rpartition(".")[2] or "it did not say why"
    return words, _AGAIN.format(name=name)


def slot_lost(trace: str) -> bool:
    return bool(_KNOWN[0][0].search(trace))


def passing(trace: str) -> bool:
    """Whether trying again may help: none of the causes that somebody has to mend."""
    return not any(pattern.search(trace) for pattern, _, _ in _KNOWN)
