"""What the checker decides. Each rule yields a sentence for each problem.

records       they are there, whole, and none is lost
commits       nothing too early, nothing back, by one sidecar at a time, and everything in the end
order         as it was chosen
repeats       redelivered for a reason, and flagged
dead_letters  complete, whole, and only for records that must have one
processes     they end as told
"""

from collections.abc import Callable, Iterator

from tests.chaos.checker.history_index import HistoryIndex
from tests.chaos.checker.rules.commits import (
    all_is_committed,
    commits_never_go_back,
    one_owner_at_a_time,
    settled_before_commit,
)
from tests.chaos.checker.rules.dead_letters import dead_letters_are_complete
from tests.chaos.checker.rules.order import in_order
from tests.chaos.checker.rules.processes import processes_end_as_told
from tests.chaos.checker.rules.records import (
    is_there,
    nothing_is_lost,
    there_was_something,
    values_are_whole,
    words_are_founded,
)
from tests.chaos.checker.rules.repeats import (
    attempts_are_counted,
    flags_have_a_reason,
    repeats_are_flagged,
    repeats_have_a_reason,
)

Rule = Callable[[HistoryIndex], Iterator[str]]

RULES: tuple[Rule, ...] = (
    there_was_something,
    is_there,
    values_are_whole,
    words_are_founded,
    nothing_is_lost,
    settled_before_commit,
    commits_never_go_back,
    one_owner_at_a_time,
    all_is_committed,
    in_order,
    repeats_have_a_reason,
    repeats_are_flagged,
    flags_have_a_reason,
    attempts_are_counted,
    dead_letters_are_complete,
    processes_end_as_told,
)
