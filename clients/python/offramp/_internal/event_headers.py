"""Headers that say what a message is about, by the names of CloudEvents, which other tools know."""

from datetime import UTC, datetime

EVENT_TIME = "ce_time"
CONTENT_TYPE = "content-type"


def format_time(moment: datetime) -> str:
    """As RFC 3339, in UTC. A time without a zone is UTC."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return aware.astimezone(UTC).isoformat().replace("+00:00", "Z")


def parse_time(text: bytes | None) -> datetime | None:
    """The time in UTC; None for what is no time with a zone."""
    try:
        moment = datetime.fromisoformat((text or b"").decode())
        return moment.astimezone(UTC) if moment.tzinfo else None
    except (ValueError, OverflowError):
        return None
