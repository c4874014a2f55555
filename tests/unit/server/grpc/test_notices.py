"""Notices that wait for a client that does not look."""

from sidecar.model.records import Notice, NoticeKind
from sidecar.server.grpc.notices import Notices


def test_a_pause_that_is_over_is_not_told() -> None:
    notices = Notices()
    notices.add(Notice(NoticeKind.PAUSED, detail="why"))
    notices.add(Notice(NoticeKind.RESUMED))
    assert [notice.kind for notice in notices.take()] == [NoticeKind.RESUMED]
    assert not notices


def test_revoked_leases_add_up_and_are_bounded() -> None:
    notices = Notices()
    for number in range(5_000):
        notices.add(Notice(NoticeKind.REVOKED, (number.to_bytes(16),)))
    (notice,) = notices.take()
    assert notice.leases[-1] == (4_999).to_bytes(16)
    assert len(notice.leases) == 1_000


def test_different_kinds_are_told_in_the_order_in_which_they_came() -> None:
    notices = Notices()
    kinds = [NoticeKind.PAUSED, NoticeKind.REVOKED, NoticeKind.DRAINING]
    for kind in kinds:
        notices.add(Notice(kind, (b"lease",) if kind is NoticeKind.REVOKED else ()))
    assert [notice.kind for notice in notices.take()] == kinds
