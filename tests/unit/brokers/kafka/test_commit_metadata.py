"""The metadata of commits: all of it is used, or nothing."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from sidecar.brokers.kafka.commit_metadata import MAX_LENGTH, Stamp, decode, encode, topic_of
from sidecar.model.records import Commit, Run

STAMP = Stamp("MkU3OEVBNTcwNTJENDM2Qg", "b93XvoCgRzaSTL4BII3yCw")
END = 1 << 62

positions = st.integers(0, 1 << 40)


@st.composite
def commits(draw: st.DrawFn, most: int = 60) -> Commit:
    """A position and runs beyond it that do not touch each other."""
    position = draw(positions)
    at, beyond = position, []
    for gap, length in draw(st.lists(st.tuples(st.integers(1, 1 << 20), st.integers(1, 1 << 20)), max_size=most)):
        beyond.append(Run(at + gap, at + gap + length))
        at += gap + length
    reach = draw(st.none() | st.integers(0, 1 << 20))
    return Commit(position, tuple(beyond), None if reach is None else position + reach)


@given(commits())
def test_acks_beyond_a_position_are_read_back(commit: Commit) -> None:
    assert decode(encode(STAMP, commit), STAMP, commit.position, END) == commit


@given(commits(most=2000))
def test_metadata_is_never_too_long_and_keeps_the_earliest_runs(commit: Commit) -> None:
    text = encode(STAMP, commit)
    assert len(text) <= MAX_LENGTH
    read = decode(text, STAMP, commit.position, END)
    assert read == replace(commit, beyond=commit.beyond[: len(read.beyond)])


def test_hundreds_of_runs_fit() -> None:
    beyond = tuple(Run(1_000_000_000 + 3 * number, 1_000_000_002 + 3 * number) for number in range(1, 5000))
    read = decode(encode(STAMP, Commit(1_000_000_000, beyond)), STAMP, 1_000_000_000, END)
    assert len(read.beyond) > 1000


def test_metadata_without_acks_names_the_topic() -> None:
    text = encode(STAMP, Commit(7))
    assert len(text) < 100
    assert decode(text, STAMP, 7, END) == Commit(7)
    assert topic_of(text, STAMP.cluster, 7) == STAMP.topic_id


@given(commits())
def test_metadata_names_the_topic_of_its_position(commit: Commit) -> None:
    assert topic_of(encode(STAMP, commit), STAMP.cluster, commit.position) == STAMP.topic_id


@given(commits())
def test_copied_metadata_names_no_topic(commit: Commit) -> None:
    text = encode(STAMP, commit)
    assert topic_of(text, "another", commit.position) is None
    assert topic_of(text, STAMP.cluster, commit.position + 1) is None


@given(st.text())
def test_metadata_of_other_programs_names_no_topic(text: str) -> None:
    assert topic_of(text, STAMP.cluster, 0) is None
    assert topic_of(f"offramp:1:{text}", STAMP.cluster, 0) is None


@given(commits(), positions)
def test_metadata_beside_another_position_is_not_used(commit: Commit, other: int) -> None:
    if other != commit.position:
        assert decode(encode(STAMP, commit), STAMP, other, END) == Commit(other)


@given(commits())
def test_metadata_of_another_cluster_or_of_a_recreated_topic_is_not_used(commit: Commit) -> None:
    text = encode(STAMP, commit)
    for stamp in (
        Stamp("another", STAMP.topic_id),
        Stamp(STAMP.cluster, "another"),
        Stamp("", ""),
        Stamp(*STAMP[::-1]),
    ):
        assert decode(text, stamp, commit.position, END) == Commit(commit.position)


@given(commits())
def test_metadata_that_reaches_beyond_the_end_of_the_lane_is_not_used(commit: Commit) -> None:
    if commit.beyond:
        last = commit.beyond[-1].stop
        assert decode(encode(STAMP, commit), STAMP, commit.position, last) == commit
        assert decode(encode(STAMP, commit), STAMP, commit.position, last - 1) == Commit(commit.position)


@given(commits(), st.data())
def test_damaged_metadata_says_nothing_or_the_same(commit: Commit, data: st.DataObject) -> None:
    text = encode(STAMP, commit)
    if not text:
        return
    at = data.draw(st.integers(0, len(text) - 1))
    damaged = data.draw(
        st.sampled_from([text[:at], text[at:], text[:at] + text[at + 1 :]])
        | st.characters().map(lambda letter: text[:at] + letter + text[at + 1 :])
    )
    # The last letter of base64 may have unused bits.
    assert decode(damaged, STAMP, commit.position, END) in (Commit(commit.position), commit)


@given(st.text())
def test_metadata_of_other_programs_is_not_used(text: str) -> None:
    for prefix in ("", "offramp:1:", "offramp:2:"):
        assert decode(prefix + text, STAMP, 0, END) == Commit(0)


def test_a_later_format_is_not_used() -> None:
    text = encode(STAMP, Commit(5, (Run(7, 9),), 8))
    assert decode(text.replace("offramp:2:", "offramp:3:"), STAMP, 5, END) == Commit(5)


def test_a_reach_that_is_not_known_is_written_as_sidecars_of_0_1_0_read_it() -> None:
    assert encode(STAMP, Commit(5, (Run(7, 9),))).startswith("offramp:1:")
