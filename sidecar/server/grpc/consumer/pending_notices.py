"""Notices for a client that does not read them now."""

from dataclasses import replace

from sidecar.model.records import Notice, NoticeKind

#: leases that one notice names at the most
_MAX_LEASES = 1_000

#: a notice of the first kind makes an earlier one of the second pointless
_SUPERSEDES = {NoticeKind.RESUMED: NoticeKind.PAUSED, NoticeKind.PAUSED: NoticeKind.RESUMED}


class PendingNotices:
    """Notices for a client that may not ask for them for a long time: at most one of each kind, oldest first. Leases
    that are about to be lost are not those that are."""

    def __init__(self) -> None:
        self._notices: dict[tuple[NoticeKind, bool], Notice] = {}

    def __bool__(self) -> bool:
        return bool(self._notices)

    def add(self, notice: Notice) -> None:
        key = notice.kind, bool(notice.until)
        earlier = self._notices.pop(key, None)
        if earlier is not None and notice.leases:
            leases = (*earlier.leases, *notice.leases)[-_MAX_LEASES:]
            notice = replace(notice, leases=leases, until=min(earlier.until, notice.until))
        if notice.kind in _SUPERSEDES:
            self._notices.pop((_SUPERSEDES[notice.kind], False), None)
        self._notices[key] = notice

    def take(self) -> list[Notice]:
        notices = list(self._notices.values())
        self._notices.clear()
        return notices
