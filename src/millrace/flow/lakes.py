"""Tables of the lake as inputs: rows that stand still while a flow runs."""

from __future__ import annotations

from dataclasses import dataclass

from millrace.errors import Where


# Nodes are compared by identity, as everywhere in a graph.
@dataclass(frozen=True, eq=False)
class LakeInput:
    """A table of the lake as a batch: the rows of its newest version when a flow is started, or of the `version` that
    is named. Its name is no topic's: an app may write to the table as well."""

    table: str
    version: int | None
    where: Where

    @property
    def name(self) -> str:
        return f"lake/{self.table}" if self.version is None else f"lake/{self.table}@{self.version}"
