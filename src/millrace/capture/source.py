"""What captures ask of a database, whichever it is: one class a kind of database gives it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from millrace.capture.check import Finding
from millrace.capture.database import Address, CapturedTable
from millrace.capture.definition import Capture


@dataclass(frozen=True)
class Health:
    """How the database sees the capture. `kept_bytes`: log that the database keeps for it and may not delete;
    `behind_bytes`: log that the capture has not confirmed yet; `lost`: why it cannot go on, otherwise None."""

    kept_bytes: int | None
    behind_bytes: int | None
    lost: str | None


class Source(Protocol):
    address: Address

    def check(self, capture: Capture) -> tuple[Finding, ...]:
        """What a DBA has to know; changes nothing."""

    def whole(self, table: str) -> str:
        """`schema.table` of a table that is given without its schema."""

    def describe(self, capture: Capture) -> tuple[CapturedTable, ...]:
        """The tables as they are now, in the order of the definition."""

    def estimates(self, capture: Capture) -> Mapping[str, int]:
        """Rows of each table, as the database's own statistics guess."""

    def prepare(self, capture: Capture) -> list[str]:
        """Makes what is lacking (publication, tables of our own); gives the statements that were run."""

    def config(
        self, capture: Capture, together: Mapping[str, Sequence[str]], password: str | None, plugins: set[str]
    ) -> dict[str, str]:
        """The connector's configuration. `together` are columns, by table, by whose values rows share a partition."""

    def snapshot(self, capture: Capture, tables: Sequence[str], conditions: Mapping[str, str]) -> str:
        """Asks the running connector to read tables again (where a condition holds); gives the signal's id."""

    def health(self, capture: Capture, offsets: Mapping[str, Any] | None) -> Health:
        """Raises when the database does not answer, which says nothing about the capture."""

    def hindrance(self, capture: Capture) -> str | None:
        """What in the database keeps the connector from starting, if there is such a thing and it can be seen."""

    def clean(self, capture: Capture, *, begins_anew: bool = False) -> list[str]:
        """Removes what `prepare` and the connector made, or only what a new beginning has to be rid of; gives what was
        run. The connector does not run."""
