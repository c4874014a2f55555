"""What is kept of reasons and delays that others choose."""

#: bytes of a reason that are kept
MAX_REASON = 1_024
#: seconds; due times are stored in milliseconds and must stay representable
MAX_RETRY_AFTER = 366 * 86_400.0


def kept_reason(text: str) -> str:
    if len(text) * 4 <= MAX_REASON:
        return text
    return text.encode(errors="replace")[:MAX_REASON].decode(errors="ignore")
