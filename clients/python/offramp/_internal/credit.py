"""How many batches to ask the sidecar for. Pure: time comes in as an argument."""


class CreditControl:
    """Asks for more batches than the workers have in hand, as long as they keep up.

    With prefetching, a worker that finishes a batch finds the next one waiting and need not wait for a round trip. But
    no other process can take a batch that waits here, so it must not wait long. When one has waited longer than
    `patience`, the workers are slow and prefetching gains nothing: the credit shrinks to what they have in hand. It is
    restored once they are fast again.
    """

    def __init__(self, limit: int, patience: float) -> None:
        self.limit = limit
        self.patience = patience
        #: batches that may be unsettled at a time
        self.credit = limit
        self._fast_in_a_row = 0

    @property
    def shrunk(self) -> bool:
        """Less is asked for than the limit, until workers are fast again."""
        return self.credit < self.limit

    def shrink(self, in_hand: int) -> None:
        """A batch has waited longer than `patience`; all waiting batches are given back."""
        self.credit = min(in_hand, self.limit)
        self._fast_in_a_row = 0

    def grow(self, in_hand: int, waiting: int) -> None:
        """`waiting` workers want a batch and there is none."""
        self.credit = max(self.credit, min(in_hand + waiting, self.limit))

    def settled(self, held: float) -> None:
        """A worker settled a batch `held` seconds after taking it."""
        if not self.shrunk:
            return
        self._fast_in_a_row = self._fast_in_a_row + 1 if held < self.patience / 2 else 0
        if self._fast_in_a_row >= self.limit:
            self.credit = self.limit
            self._fast_in_a_row = 0
