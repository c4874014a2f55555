"""Records come in the order that was chosen."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from tests.chaos.seen import Seen
from tests.e2e.load.journal import Spot, Word


def in_order(seen: Seen) -> Iterator[str]:
    """Records come in the order that was chosen."""
    order = seen.history.order
    if order == "none":
        return
    queues: dict[tuple[int, str], list[Spot]] = defaultdict(list)
    name_of: dict[Spot, tuple[int, str]] = {}
    for spot, stored in sorted(seen.records.items()):
        if order == "lane" or stored.key is not None:
            name_of[spot] = (spot.lane, stored.key or "" if order == "key" else "")
            queues[name_of[spot]].append(spot)
    done: set[Spot] = set()
    #: how many of the first of each queue are done: that only grows
    heads: dict[tuple[int, str], int] = defaultdict(int)
    for note in seen.history.notes:
        spots = {entry.spot for entry in note.entries if entry.spot in name_of}
        if note.word is Word.ACKED:
            done |= spots
        elif note.word is Word.TOOK:
            for spot in spots:
                name = name_of[spot]
                queue = queues[name]
                while heads[name] < len(queue) and queue[heads[name]] in done:
                    heads[name] += 1
                for earlier in queue[heads[name] :]:
                    if earlier >= spot:
                        break
                    if earlier not in done and earlier not in spots:
                        yield f"{seen.story(spot)}; but before it comes {seen.story(earlier)}"
                        break
            batch = [entry.spot for entry in note.entries]
            for one, two in pairwise(batch):
                if name_of.get(one) == name_of.get(two) is not None and two < one:
                    yield f"{seen.name(two)} stands after {seen.name(one)} in a batch of {note.writer}"
            # One that ends as a dead letter is done when it was delivered: what comes after it may go.
            done |= spots & seen.letters.keys()
