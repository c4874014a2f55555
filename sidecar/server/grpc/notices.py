"""Notices on their way to a client that may not look for a long time: only what still matters is kept."""

from sidecar.model.records import Notice, NoticeKind

#: leases that one notice names at the most
_MOST_LEASES = 1_000

#: a notice of this kind makes an earlier one of that kind pointless
_ENDS = {NoticeKind.RESUMED: NoticeKind.PAUSED, NoticeKind.PAUSED: NoticeKind.RESUMED}


class Notices:
    """At most one of each kind, in the order in which they came."""

    def __init__(self) -> None:
        self._notices: dict[NoticeKind, Notice] = {}

    def __bool__(self) -> bool:
        return bool(self._notices)

    def add(self, notice: Notice) -> None:
        earlier = self._notices.pop(notice.kind, None)
        if earlier is not None and notice.leases:
            leases = (*earlier.leases, *notice.leases)[-_MOST_LEASES:]
            notice = Notice(notice.kind, leases, notice.detail)
        if notice.kind in _ENDS:
            self._notices.pop(_ENDS[notice.kind], None)
        self._notices[notice.kind] = notice

    def take(self) -> list[Notice]:
        notices = list(self._notices.values())
        self._notices.clear()
        return notices
