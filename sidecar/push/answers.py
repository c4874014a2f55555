"""What an HTTP answer says of its batch. Pure."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from sidecar.model.limits import MAX_RETRY_AFTER, kept_reason
from sidecar.model.records import Message, Outcome
from sidecar.push import replies, results
from sidecar.push.batch import PushedBatch
from sidecar.push.formats import Payload
from sidecar.push.results import BadResult
from sidecar.push.verdict import NotReached, Settled, Verdict

#: says whether the body of an answer is a `result` or a `reply`
KIND_HEADER = "offramp-answer"

#: the route is wrong, or the app does not let the sidecar in
_WRONG_ROUTE: Mapping[int, str] = {
    401: "check push.headers, push.header_files and push.signing_secret_file",
    403: "check push.headers, push.header_files and push.signing_secret_file",
    404: "check the path of push.url",
    405: "check the path of push.url: it must take POST",
}
_OVERLOADED = (429, 503)
#: a proxy does not know whether the app has done it
_UNKNOWN_OUTCOME = (502, 504)
#: members of a JSON body that say why, in frameworks and in RFC 9457
_REASONS = ("reason", "detail", "title", "message", "error")


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    #: names in lower case
    headers: Mapping[str, str]
    body: bytes
    #: the body was larger than what is read
    too_large: bool = False


@dataclass(frozen=True, slots=True)
class Rules:
    """The settings that decide what an answer means."""

    reject_statuses: Collection[int]
    publishes_replies: bool
    #: milliseconds since 1970
    now_ms: int


def judge(answer: Answer, batch: PushedBatch, payload: Payload, rules: Rules) -> Verdict:
    status, word = answer.status, str(answer.status)
    if 200 <= status < 300:
        return _accepted(answer, batch, payload, rules)
    reason = _reason(answer)
    if status in rules.reject_statuses:
        # A proxy's 413 must not dead-letter a good batch: it is split until a record is alone.
        return Settled(word, Outcome.REJECT if len(batch.records) == 1 else Outcome.NACK, reason)
    if status in _WRONG_ROUTE:
        return NotReached(word, f"the app answers {reason}: {_WRONG_ROUTE[status]}. Nothing is counted")
    if status in _OVERLOADED:
        return Settled(word, Outcome.OVERLOADED, reason, retry_after(answer.headers.get("retry-after"), rules.now_ms))
    return Settled(word, Outcome.NACK, reason, possibly_processed=status in _UNKNOWN_OUTCOME)


def retry_after(value: str | None, now_ms: int) -> float | None:
    """Seconds of a Retry-After: a number of them, or a date. None if there is none, or if it is neither."""
    text = (value or "").strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:12]), MAX_RETRY_AFTER)
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    return min(max(0.0, (moment - now).total_seconds()), MAX_RETRY_AFTER)


def _accepted(answer: Answer, batch: PushedBatch, payload: Payload, rules: Rules) -> Verdict:
    word = str(answer.status)
    kind = answer.headers.get(KIND_HEADER, "").strip().lower()

    def in_doubt(text: str) -> Verdict:
        reason = kept_reason(f"HTTP {answer.status}, but {text}")
        return Settled(word, Outcome.NACK, reason, possibly_processed=True)

    if answer.too_large:
        return in_doubt("the answer is larger than push.max_answer")
    if kind not in ("", "result", "reply"):
        return in_doubt(f"{KIND_HEADER} is {json.dumps(kind[:100])}, which is neither result nor reply")
    if kind == "reply" and not rules.publishes_replies:
        return in_doubt("the answer is a reply, and push.reply_topic is not set")
    if kind == "reply" or (rules.publishes_replies and not kind):
        return Settled(word, Outcome.ACK, reply=_reply(answer, batch))
    if kind != "result" and not _looks_like_a_result(answer):
        return Settled(word, Outcome.ACK)
    try:
        return Settled(word, Outcome.ACK, parts=results.parse(answer.body, payload.ids))
    except BadResult as error:
        return in_doubt(str(error))


def _looks_like_a_result(answer: Answer) -> bool:
    """Whether it would be an error if it cannot be parsed. Not only by its type: a handler that prints JSON and leaves
    the type at text/html means what it says."""
    body = answer.body.lstrip()
    return body[:1] == b"{" or (bool(body) and "json" in answer.headers.get("content-type", "").lower())


def _reply(answer: Answer, batch: PushedBatch) -> Message | None:
    return replies.message(answer.headers, answer.body, batch) if answer.body else None


def _reason(answer: Answer) -> str:
    """The status and, if the body is JSON that says why, that."""
    text = f"HTTP {answer.status}"
    if not answer.too_large and answer.body.lstrip()[:1] == b"{":
        try:
            body = json.loads(answer.body)
        except (ValueError, RecursionError):
            return text
        said = next((body[key] for key in _REASONS if isinstance(body.get(key), str) and body[key]), "")
        if said:
            return kept_reason(f"{text}: {said}")
    return text
