"""Replicas of a served dream: which answer, which are the same dream, and how many sessions each has."""

from __future__ import annotations

import asyncio
import http.client
import json
import logging
import urllib.error
import urllib.request
from dataclasses import dataclass, field

_LOG = logging.getLogger(__name__)
CHECK_SECONDS = 2.0
"""Between two looks at the replicas."""
ANSWER_SECONDS = 5.0
"""In which a replica must say that it is there."""


@dataclass
class Replica:
    """One server of the dream.

    Args:
        address: such as http://10.0.0.3:8000.
        version: of its model and data, as it says itself; "" until it has answered.
        fault: why it gets no session; "" if it may get one.
        sessions: that the balancer has with it.
    """

    address: str
    version: str = ""
    fault: str = "not asked yet"
    sessions: int = 0

    @property
    def socket_address(self) -> str:
        """The address of its WebSocket."""
        return "ws" + self.address.removeprefix("http").rstrip("/") + "/ws"


@dataclass
class Replicas:
    """All replicas behind one balancer.

    Args:
        token: that the replicas ask for; "" for none.
        all: in the order in which they were named.
        version: of the dream that is served: that of the first replica that answered, until no replica with
            it answers and another one does.
    """

    token: str
    all: list[Replica] = field(default_factory=list)
    version: str = ""

    @property
    def available(self) -> list[Replica]:
        """Those that may get a session, the one with the fewest first."""
        return sorted((one for one in self.all if not one.fault), key=lambda one: one.sessions)

    def lose(self, replica: Replica, fault: str) -> None:
        """Give the replica no session until it answers again."""
        if not replica.fault:
            _LOG.warning("the replica %s is left out: %s", replica.address, fault)
        replica.fault = fault

    async def watch(self) -> None:
        """Look at all replicas again and again, until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(CHECK_SECONDS)

    async def look(self) -> None:
        """Ask all replicas for their version; leave out those that do not answer or are another dream."""
        found = await asyncio.gather(*(asyncio.to_thread(self._version_of, one.address) for one in self.all))
        answered = [version for version, fault in found if not fault]
        if answered and self.version not in answered:
            self.version = answered[0]
        for replica, (version, fault) in zip(self.all, found, strict=True):
            if not fault and version != self.version:
                fault = f"it serves another dream ({version}, the others serve {self.version})"
            replica.version = version
            if fault:
                self.lose(replica, fault)
            elif replica.fault:
                _LOG.warning("the replica %s is used", replica.address)
                replica.fault = ""

    def _version_of(self, address: str) -> tuple[str, str]:
        """Return a replica's version, or the reason why it has none."""
        request = urllib.request.Request(address.rstrip("/") + "/metadata")  # noqa: S310
        if self.token:
            request.add_header("Authorization", f"Bearer {self.token}")
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:  # noqa: S310
                return str(json.load(answer).get("version") or ""), ""
        except urllib.error.HTTPError as error:
            return "", f"it answers with status {error.code}"
        except (OSError, ValueError, AttributeError, http.client.HTTPException) as error:
            return "", f"it does not answer ({getattr(error, 'reason', None) or error})"
