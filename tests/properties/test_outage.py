"""Backoff, the outage detector and the reject rate monitor, each against a plain model of its rule."""

import random
from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from sidecar.core.failures.backoff import Backoff
from sidecar.core.failures.outage import OutageDetector, RejectRateMonitor
from sidecar.settings import OutageSettings, Seconds


@given(
    first=st.just(0.0) | st.floats(1e-3, 10.0),
    factor=st.floats(1.0, 100.0),
    longest=st.floats(0.0, 1e4),
    jitter=st.floats(0.0, 1.0),
    failures=st.integers(0, 5_000),
)
def test_a_wait_grows_up_to_the_longest_and_only_the_jitter_is_random(
    first: float, factor: float, longest: float, jitter: float, failures: int
) -> None:
    backoff = Backoff(first, factor, longest, jitter, random.Random(failures))
    full = first
    for _ in range(min(failures, 2_000) - 1):
        full = min(longest, full * factor)
    full = min(longest, full)
    for _ in range(5):
        wait = backoff.wait(failures)
        assert full * (1.0 - jitter) * 0.999 <= wait <= full * 1.001


class AnOutageIsToldFromPoison(RuleBasedStateMachine):
    """The model is everything that has happened so far."""

    @initialize(enabled=st.booleans(), failures=st.integers(1, 4), lately=st.sampled_from([1.0, 3.0]))
    def start(self, enabled: bool, failures: int, lately: float) -> None:
        self.settings = OutageSettings(enabled=enabled, failures=failures, lately=Seconds(lately))
        self.outage = OutageDetector(self.settings)
        self.now = 7.0
        self.successes: list[float] = []
        #: batches that failed since the last success, of records that had not failed before
        self.failed: list[int] = []
        self.down = self.certain = False

    @rule(later=st.sampled_from([0.0, 0.5, 1.0, 4.0]))
    def time_passes(self, later: float) -> None:
        self.now += later

    @rule()
    def a_batch_succeeds(self) -> None:
        self.outage.success(self.now)
        self.successes.append(self.now)
        self.failed = []
        self.down = self.certain = False

    @rule(lease=st.integers(1, 9), first=st.booleans())
    def a_batch_fails(self, lease: int, first: bool) -> None:
        began = self.outage.failure(lease, self.now, first=first)
        if not self.settings.enabled:
            assert not began
            return
        if first:
            self.failed.append(lease)
        batches, before = len({*self.failed}), self.down
        self.down = before or batches >= self.settings.failures or not self.succeeded_lately()
        assert began == (self.down and not before)
        if before and (batches >= 2 * self.settings.failures or (batches and not self.succeeded_lately())):
            self.certain = True

    def succeeded_lately(self) -> bool:
        return any(self.now - success <= self.settings.lately for success in self.successes)

    @invariant()
    def it_is_down_exactly_while_everything_fails(self) -> None:
        assert (self.outage.down, self.outage.certain) == (self.down, self.certain)

    @invariant()
    def a_batch_is_split_only_while_the_handler_works_for_others(self) -> None:
        works = not self.down and self.succeeded_lately()
        assert self.outage.may_split(self.now) == (works or not self.settings.enabled)

    @invariant()
    def a_record_is_given_up_only_if_others_succeeded_since_it_first_failed(self) -> None:
        for first_failed in (None, self.now, self.now - 1.0, self.now - 5.0):
            since = first_failed is not None and any(success >= first_failed for success in self.successes)
            assert self.outage.may_give_up(first_failed) == ((since and not self.down) or not self.settings.enabled)


TestOutageGuard = AnOutageIsToldFromPoison.TestCase

settled = st.lists(st.tuples(st.integers(1, 60), st.booleans()), max_size=40)


@given(settled, st.floats(0.0, 1.0), st.integers(1, 100))
def test_an_alarm_means_that_the_last_records_were_rejected_more_than_allowed(
    history: list[tuple[int, bool]], share: float, sample: int
) -> None:
    watch = RejectRateMonitor(OutageSettings(reject_share=share, reject_sample=sample))
    for records, rejected in history:
        watch.settled(records, rejected=rejected)
    if watch.alarming():
        backwards = history[::-1]
        totals = [*accumulate(records for records, _ in backwards)]
        rejects = [*accumulate(records * rejected for records, rejected in backwards)]
        assert totals[-1] >= sample
        assert any(bad > share * total * 0.999 for bad, total in zip(rejects, totals, strict=True))
        assert share < 1.0


@given(settled, st.floats(0.0, 0.89), st.integers(1, 100))
def test_a_handler_that_begins_to_reject_everything_is_noticed(
    before: list[tuple[int, bool]], share: float, sample: int
) -> None:
    watch = RejectRateMonitor(OutageSettings(reject_share=share, reject_sample=sample))
    for records, rejected in before:
        watch.settled(records, rejected=rejected)
    for _ in range(10 * sample + 60):
        watch.settled(1, rejected=True)
    assert watch.alarming()
    watch.reset()
    assert not watch.alarming()
