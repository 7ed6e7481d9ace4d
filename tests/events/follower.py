"""A process that follows the bank's store until it is killed: by a projection, by rebuilding one, or by its saga.

python -m tests.events.follower URL project|rebuild|saga
"""

from __future__ import annotations

import sys

from millrace.capture.database import parsed
from millrace.demo.bank_accounts import balances, transfers
from millrace.events import LiveProjection, Projection, Store, projection
from millrace.events.connections import Connections

# Where each says how far it is: rows of the store's table `reader`.
READERS = {"project": "balances", "rebuild": "rebuilt__next", "saga": "saga__transfers"}


def projected(store: Store, name: str) -> LiveProjection:
    """The bank's balances under another name: they are another projection."""
    made = Projection(name, create=balances.create)
    made.handlers.functions.update(balances.handlers.functions)
    return store.projection(made)


def main(url: str, what: str) -> None:
    vars(projection)["PAGE"] = 3  # many small transactions, so that a kill hits one
    store = Store(Connections("bank", parsed("bank", url)))
    work = {
        "project": projected(store, "balances").catch_up,
        "rebuild": projected(store, "rebuilt").rebuild,
        "saga": store.saga(transfers).catch_up,
    }[what]
    while True:
        work()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
