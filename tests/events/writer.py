"""A process that writes to the store until it is killed: random commands, each with an id, acknowledged on a file.

python -m tests.events.writer URL SEED ACKNOWLEDGED
"""

from __future__ import annotations

import random
import sys
from decimal import Decimal
from pathlib import Path

from millrace.capture.database import parsed
from millrace.errors import ConflictFound
from millrace.events import Refused, Store, every
from millrace.events.connections import Connections
from tests.events.bank import Account

ACCOUNTS = 4


def main(url: str, seed: int, acknowledged: Path) -> None:
    """Commands are the same for the same seed, whoever runs them, and however often."""
    store = Store(Connections("bank", parsed("bank", url)))
    accounts = store.repository(Account, snapshots=every(7))
    chance = random.Random(seed)
    with acknowledged.open("a", encoding="utf-8") as file:
        number = 0
        while True:
            name = f"{seed}:{number}"
            first, second = (f"a{n}" for n in chance.sample(range(ACCOUNTS), 2))
            amount, kind = Decimal(chance.randint(1, 9)), chance.random()
            number += 1
            try:
                if kind < 0.5:
                    accounts.change(first, Account.deposit, amount, by=name)
                elif kind < 0.7:
                    accounts.change(first, Account.withdraw, amount, by=name)
                elif store.handled(name) is None:
                    source, target = accounts.find(first), accounts.find(second)
                    source.withdraw(amount)
                    target.deposit(amount, f"from {first} by {name}")
                    store.save(source, target, command=name)
            except (Refused, ConflictFound):
                continue
            file.write(f"{name}\n")
            file.flush()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
