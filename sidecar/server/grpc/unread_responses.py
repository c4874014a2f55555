"""Answers of unary calls that their clients have not read so far.

gRPC keeps such an answer until the client takes it or is gone, and nothing else takes it back. A client that settles
what it has not read could so have one answer after another made for it, and kept. So they are counted, for each caller:
one who leaves too much unread gets no more, and others do not notice.
"""

from collections import defaultdict

from sidecar.model.errors import Exhausted
from sidecar.model.units import show_size
from sidecar.server.auth.caller import Caller, current
from sidecar.server.grpc.rpc import Context

#: bytes; records may be larger than what their subscription should hold
_LEAST = 64 << 20


class Unread:
    def __init__(self, held: int) -> None:
        """`held`: bytes that all subscriptions together may hold in memory. What an honest client has not read it has
        not settled either, so it cannot be more than that."""
        self._most = max(held, _LEAST)
        self._bytes: defaultdict[Caller, int] = defaultdict(int)

    def check(self) -> None:
        """Raises `Exhausted` if the caller of this call has left too much unread."""
        if self._bytes.get(current(), 0) > self._most:
            raise Exhausted(
                f"answers of more than {show_size(self._most)} wait to be read, which is more than all subscriptions "
                "may hold (memory.bytes): read them before asking for more"
            )

    def count(self, answer: bytes, context: Context) -> None:
        """This is the answer of a call: it counts until the client has it or is gone."""
        caller, size = current(), len(answer)
        self._bytes[caller] += size

        def over(_: object) -> None:
            self._bytes[caller] -= size
            if not self._bytes[caller]:
                # Tokens come and go.
                del self._bytes[caller]

        context.add_done_callback(over)  # type: ignore[arg-type] # the stubs ask for a class of their own
