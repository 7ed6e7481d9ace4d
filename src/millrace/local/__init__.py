"""The real servers, as child processes of a project: fetched, verified, started, found again, ended. No client code.

`up`, `down`, `held` and `status` act on them; `address` says where one is, be it local or the user's own.
"""

from millrace.local.supervisor import Status, address, down, held, reset, site_of, status, up

__all__ = ["Status", "address", "down", "held", "reset", "site_of", "status", "up"]
