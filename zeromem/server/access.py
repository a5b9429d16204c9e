"""Who asks: API keys, the scopes of their tenants, and their rates."""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from starlette.datastructures import Headers

from zeromem.keys import Key, Keys
from zeromem.server import openai_form
from zeromem.server.problems import Problem, whole_seconds
from zeromem.server.settings import Settings

SCOPE_HEADER = "Zeromem-Scope"
_OURS = "zeromem-"
HEADERS = (
    SCOPE_HEADER, "Zeromem-Session", "Zeromem-Speaker", "Zeromem-Assistant", "Zeromem-K",
    "Zeromem-Token-Budget", "Zeromem-Store",
)  # fmt: skip
_KNOWN = {name.lower(): name for name in HEADERS}
# All but chats say the rest in the body or the query.
_ALONE = {SCOPE_HEADER.lower(): SCOPE_HEADER}
_MOST_KEYS = 10_000
_LONGEST_NAME = 512
# Printable ASCII with the rest percent-encoded.
SCOPE_PATTERN = "^([ -$&-~]|%[0-9A-Fa-f]{2})+$"
_ENCODED = re.compile(SCOPE_PATTERN)


@dataclass(frozen=True, slots=True)
class Access:
    """What one request may reach.

    Attributes
    ----------
    key : Key, optional
        None where the server needs none.
    name : str
        The scope as the client names it.
    """

    key: Key | None
    name: str

    @property
    def tenant(self) -> str:
        """Who is served in turn, and limited."""
        return "" if self.key is None else self.key.tenant or self.key.id

    @property
    def prefix(self) -> str:
        """What the store's names of this tenant's scopes begin with.

        A tenant's name has no "/", so no scope of one begins like those of another.
        """
        return "" if self.key is None or self.key.tenant is None else f"{self.key.tenant}/"

    @property
    def scope(self) -> str:
        """The scope as the store names it."""
        return self.prefix + self.name

    @property
    def may_write(self) -> bool:
        return self.key is None or not self.key.read_only


class Rates:
    """A bucket of requests for each key: filled at its rate, and a request takes one.

    Parameters
    ----------
    settings : Settings
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, key: Key) -> None:
        """Let a request pass.

        Raises
        ------
        Problem
            429: the key has used up its rate.
        """
        rate = key.rate if key.rate is not None else self._settings.rate
        if rate is None:
            return
        now, most = time.monotonic(), max(1.0, rate * self._settings.burst)
        held, since = self._buckets.get(key.id, (most, now))
        held = min(most, held + (now - since) * rate)
        passes = held >= 1
        self._buckets[key.id] = (held - passes, now)
        self._buckets.move_to_end(key.id)
        while len(self._buckets) > _MOST_KEYS:
            self._buckets.popitem(last=False)
        if not passes:
            wait = whole_seconds((1 - held) / rate)
            raise Problem(
                429, "rate-limited", f"this key may send {rate:g} requests a second; send again "
                f"in {wait} s", retry_after=wait,
            )  # fmt: skip


class Gate:
    """Tells who sends a request, before anything of its body is read.

    Parameters
    ----------
    keys : Keys, optional
        None where none are ever needed.
    settings : Settings
    """

    def __init__(self, keys: Keys | None, settings: Settings) -> None:
        self._keys = keys
        self._settings = settings
        self._closed = settings.auth
        self._rates = Rates(settings)

    @property
    def is_closed(self) -> bool:
        """Whether a key is needed: from the first one on, revoked or not."""
        if not self._closed and self._keys is not None:
            self._closed = bool(self._keys.list())
        return self._closed

    def access(self, headers: Headers, path: str) -> Access:
        """Check a request's key and read its scope.

        Raises
        ------
        Problem
            401, 422 or 429.
        """
        key = None
        if self.is_closed:
            kind, _, text = headers.get("authorization", "").partition(" ")
            bearer = kind.lower() == "bearer" and self._keys is not None
            key = self._keys.find(text.strip()) if bearer and self._keys else None
            if key is None:
                raise _unknown()
            self._rates.take(key)
        check_names(headers, path)
        return Access(key, scope_of(headers, self._settings.scope))

    def check(self, access: Access) -> None:
        """Refuse to go on where the key was revoked meanwhile.

        Raises
        ------
        Problem
            401.
        """
        if access.key is not None and self._keys is not None and not self._keys.holds(access.key):
            raise _unknown()


def _unknown() -> Problem:
    return Problem(
        401, "unauthorized", "send 'Authorization: Bearer zm_…' with a key that "
        "`zeromem keys create` made and that was not revoked",
    )  # fmt: skip


def check_names(headers: Headers, path: str) -> None:
    """Refuse a header of ours that means nothing here: it would be ignored without a word.

    Raises
    ------
    Problem
    """
    known = _ALONE if path.startswith("/v1/") and not openai_form.has(path) else _KNOWN
    for name in headers:
        if name.startswith(_OURS) and name not in known:
            fix = f"the headers here are {', '.join(known.values())}"
            raise Problem(
                422, "invalid-input", f"unknown header {name[:80]!r}; {fix}",
                errors=[{"field": name[:80], "value": headers[name][:80], "fix": fix}],
            )  # fmt: skip


def scope_of(headers: Headers, default: str) -> str:
    """Read the scope's name from its header.

    Raises
    ------
    Problem
    """
    text = headers.get(SCOPE_HEADER)
    if len(headers.getlist(SCOPE_HEADER)) > 1:  # a proxy may have looked at the other one
        text = ""
    return default if text is None else decoded(SCOPE_HEADER, text)


def decoded(header: str, text: str) -> str:
    """Read a name, percent-encoded UTF-8, from a header.

    Raises
    ------
    Problem
        422.
    """
    name = ""
    if _ENCODED.fullmatch(text):
        with suppress(UnicodeError):
            name = unquote_to_bytes(text.encode("latin-1")).decode("utf-8")
    if not name or len(name) > _LONGEST_NAME:
        raise Problem(
            422, "invalid-input", f"the header {header} must be one name of 1 to {_LONGEST_NAME} "
            "characters, percent-encoded as UTF-8",
            errors=[{"field": header, "value": text[:80],
                     "fix": "encode it as urllib.parse.quote(name) does"}],
        )  # fmt: skip
    return name
