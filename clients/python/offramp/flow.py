"""How many batches to ask for. Pure: time comes in."""


class Flow:
    """Keeps a little more on hand than the workers have in hand, as long as they keep up.

    Whoever finishes a batch finds the next one waiting, instead of idling for a round trip. But a batch that waits
    here is one that no other process can take, so waiting must be short: when one has waited longer than `patience`,
    the workers are slow, prefetching gains nothing, and only as much is asked for as they have in hand. Once they
    are fast again, so is this.
    """

    def __init__(self, credit: int, patience: float) -> None:
        self.credit = credit
        self.patience = patience
        #: batches that may be unsettled at a time
        self.ask = credit
        self._fast = 0

    def stalled(self, in_hand: int) -> None:
        """A batch has waited longer than `patience`, and all that wait are given back."""
        self.ask = min(in_hand, self.credit)
        self._fast = 0

    def wanted(self, in_hand: int, waiting: int) -> None:
        """So many workers wait for a batch, and none is there."""
        self.ask = max(self.ask, min(in_hand + waiting, self.credit))

    def settled(self, held: float) -> None:
        """A worker settled a batch after so many seconds."""
        if self.ask == self.credit:
            return
        self._fast = self._fast + 1 if held < self.patience / 2 else 0
        if self._fast >= self.credit:
            self.reset()

    def reset(self) -> None:
        self.ask = self.credit
        self._fast = 0
