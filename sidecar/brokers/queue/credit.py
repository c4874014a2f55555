"""How many messages to ask for at a time, so that they fit into a size. Pure."""

#: the first question; it doubles while it is answered in full
_FIRST = 4
#: messages after which a large one is forgotten
_MEMORY = 2_000


class Credit:
    """Sized by the largest message of late, because the credit of most brokers counts messages. Starts small: nothing
    is known of the next messages before the first ones are here."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._records = min(_FIRST, most)
        #: bytes of the largest message since the last two times that so many had arrived, and how many have since
        self._largest = [1, 1]
        self._seen = 0

    def next(self, size: int) -> int:
        """How many messages to ask for, of which all should fit into so many bytes: at least one."""
        return max(1, min(self._records, size // max(self._largest)))

    def received(self, asked: int, sizes: list[int]) -> None:
        """So many were asked for, and messages of these sizes arrived."""
        if not sizes:
            return
        if len(sizes) >= asked >= self._records:
            self._records = min(self._most, 2 * self._records)
        self._largest[0] = max(self._largest[0], *sizes)
        self._seen += len(sizes)
        if self._seen >= _MEMORY:
            self._largest = [max(sizes), self._largest[0]]
            self._seen = 0
