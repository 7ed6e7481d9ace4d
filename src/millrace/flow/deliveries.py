"""`.to(sink)`: what is written where, and with which guarantee."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from millrace.errors import GuaranteeMissing, OptionInvalid, SinkRealTime, Where, caller
from millrace.sinks.contract import GUARANTEES, Guarantee, Sink

if TYPE_CHECKING:
    from millrace.flow.nodes import Deliverable

# What a sink does less than it could if it is asked to, so that the price can be seen.
_LESS: tuple[Guarantee, ...] = ("at least once", "at most once")


# Nodes are compared by identity, as everywhere in a graph.
@dataclass(frozen=True, eq=False)
class Delivery:
    """A sink of a table, a stream or a topic. `asked` is the guarantee that was asked for, if any was."""

    of: Deliverable
    sink: Sink
    asked: Guarantee | None
    where: Where

    @property
    def name(self) -> str:
        return self.sink.name

    @property
    def guarantee(self) -> Guarantee:
        """The one that is kept: the sink's own, or the lesser one that was asked for."""
        return self.asked if self.asked in _LESS else self.sink.guarantee


@dataclass(frozen=True, eq=False)
class Delivered:
    """What can be delivered to sinks."""

    # Filled by `to` while the app is being defined.
    deliveries: list[Delivery] = field(default_factory=list, init=False, repr=False)

    def to(self, *sinks: Sink, delivery: Guarantee | None = None) -> Self:
        """Writes it to these sinks, epoch by epoch: a table's rows, a stream's results beside its topic, a topic's
        records. Sinks of one table, stream or topic share a flow, each with a ledger of its own; one whose server is
        away catches up later and does not hold back the others.

        Each sink keeps its own guarantee. `delivery` demands one, and a sink that cannot keep it is refused; "at least
        once" (no ledger) and "at most once" (an epoch counts as done before it is written) can be asked of every one.
        """
        where = caller()
        name = getattr(self, "name", "")
        if delivery is not None and delivery not in GUARANTEES:
            remedy = f"choose from {', '.join(repr(each) for each in GUARANTEES)}"
            raise OptionInvalid(name=name, option="delivery", given=delivery, remedy=remedy, where=where)
        for sink in sinks:
            if not isinstance(sink, Sink):
                remedy = 'give a sink: mr.postgres("orders"), mr.files("out"), mr.terminal()'
                raise OptionInvalid(name=name, option="to", given=sink, remedy=remedy, where=where)
            if getattr(self, "epoch_ms", None) is not None:
                raise SinkRealTime(flow=name, sink=sink.name, where=where)
            if not _kept(sink.guarantee, delivery):
                raise GuaranteeMissing(sink=sink.name, own=sink.guarantee, asked=delivery, where=where)
            _add(self, sink, delivery, where)
        return self


def _add(of: Any, sink: Sink, asked: Guarantee | None, where: Where) -> None:
    of.deliveries.append(Delivery(of, sink, asked, where))


def _kept(own: Guarantee, asked: Guarantee | None) -> bool:
    if asked is None or asked in _LESS:
        return True
    return GUARANTEES.index(own) <= GUARANTEES.index(asked)
