"""Who may look: whoever is on this machine, as long as there are no tokens; otherwise who has shown one that has the
scope `console`. As `millrace serve` has it.

A browser shows its token once and gets a cookie for it, which this process alone knows and which ends with it.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

from millrace.addresses import is_loopback
from millrace.config import Listen, Settings
from millrace.errors import ConsolePublic, TokensUnreadable
from millrace.serve.gate import STRANGERS_PER_S, Paces
from millrace.serve.tokens import Token, Tokens

SCOPE = "console"
# Browsers that are in at a time.
MOST_BROWSERS = 1_000

Headers = Mapping[bytes, bytes]


class Access:
    def __init__(self, settings: Settings, listen: Listen) -> None:
        self._tokens = Tokens(settings.tokens)
        self._public = not is_loopback(listen.host)
        if self._public and not any(token.allows(SCOPE) for token in self._tokens.all()):
            raise ConsolePublic(host=listen.host, port=listen.port)
        # Cookies do not know one port from another.
        self.cookie = f"millrace_console_{listen.port}"
        self._hosts = {name.lower() for name in settings.serve.hosts}
        self._browsers: OrderedDict[str, Token] = OrderedDict()
        self._paces = Paces()

    @property
    def guarded(self) -> bool:
        return self._public or self._tokens.file.exists()

    def is_own(self, headers: Headers) -> bool:
        """Whether it is not another site that made the browser send it: by a name that somebody else's DNS lets point
        here, or from a page of another origin. Whoever has to show a token may have come by any name."""
        host, origin = headers.get(b"host", b"").decode("latin-1"), headers.get(b"origin", b"").decode("latin-1")
        try:
            name = urlsplit(f"//{host}").hostname or ""
            from_here = not origin or urlsplit(origin).netloc == host
        except ValueError:
            return False
        known = bool(name) and (not self._hosts or name in self._hosts) if self.guarded else False
        return (is_loopback(name) or known) and from_here

    def enter(self, secret: str, client: str) -> str:
        """The value of the cookie for a browser that shows a token. Raises if it is none, or lacks the scope."""
        try:
            token = self._tokens.found(secret.strip())
            token.require(SCOPE)
        except Exception:
            self._paces.take(f"stranger {client}", STRANGERS_PER_S)
            raise
        value = secrets.token_urlsafe(32)
        self._browsers[_hashed(value)] = token
        while len(self._browsers) > MOST_BROWSERS:
            self._browsers.popitem(last=False)
        return value

    def token(self, headers: Headers) -> Token | None:
        """The one that this browser has shown, if it still is one."""
        try:
            found = SimpleCookie(headers.get(b"cookie", b"").decode("latin-1")).get(self.cookie)
        except CookieError:
            return None
        token = None if found is None else self._browsers.get(_hashed(found.value))
        return token if token is not None and self.holds(token) else None

    def holds(self, token: Token) -> bool:
        """If nobody can say, it does not."""
        try:
            return self._tokens.holds(token)
        except TokensUnreadable:
            return False


def _hashed(value: str) -> str:
    """So that how long a look takes tells nothing about those that are known."""
    return hashlib.sha256(value.encode()).hexdigest()
