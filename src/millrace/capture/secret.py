"""Passwords as Connect gets them: references that its worker resolves, never the words themselves."""

from __future__ import annotations

import os

from millrace.capture.database import Address
from millrace.config import Settings
from millrace.errors import SecretNeedsReference
from millrace.local.servers.connect import secrets_folder


def reference(settings: Settings, name: str, address: Address) -> str | None:
    """What stands for the password in the connector's configuration.

    The project's own worker looks secrets up in a folder; a worker of somebody else's knows its own references, and
    `[databases.NAME] connect_password` gives one.
    """
    given = settings.database(name).connect_password if name in settings.databases else None
    if given is not None:
        return given
    if address.password is None:
        return None
    if settings.connect.url is not None:
        raise SecretNeedsReference(name=name)
    file = secrets_folder(settings) / f"{name}.password"
    draft = file.with_suffix(".new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as out:
        out.write(address.password)
    draft.replace(file)
    return f"${{dir:{file.parent}:{file.name}}}"
