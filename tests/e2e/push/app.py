"""An ASGI app that answers as its rules say, and notes every call. Run by `tests.e2e.push.harness`.

The rules are a JSON file, read at each call: how to answer a call with a certain value, or "*". The first value of a
call that has a rule decides.
"""

import asyncio
import base64
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import uvicorn

RULES, JOURNAL = Path(sys.argv[1]), Path(sys.argv[2])


def note(event: dict[str, Any]) -> None:
    """One write, so that no line is torn, whatever kills the process."""
    line = json.dumps({"pid": os.getpid(), "at": time.monotonic(), **event}).encode() + b"\n"
    file = os.open(JOURNAL, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, line)
    os.close(file)


def values_of(headers: dict[str, str], body: bytes) -> list[str]:
    kind = headers.get("content-type", "")
    if kind.startswith("application/cloudevents-batch"):
        return [str(event.get("data")) for event in json.loads(body)]
    if kind.startswith("application/cloudevents+json"):
        return [str(json.loads(body).get("data"))]
    if "offramp-record" in headers and not body.startswith(b'{"batch"'):
        return [body.decode(errors="replace")]
    return [str(record.get("value")) for record in json.loads(body)["records"]]


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    if scope["type"] != "http":
        return
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    values = values_of(headers, body)
    rules = json.loads(RULES.read_text())
    value = next((one for one in values if one in rules), "*")
    rule = rules.get(value, {})
    call = {"values": values, "path": scope["path"], "headers": headers, "body": base64.b64encode(body).decode()}
    note({"event": "begin", **call})
    if rule.get("die"):
        os.kill(os.getpid(), 9)
    if "sleep" in rule:
        await asyncio.sleep(rule["sleep"])
    if "until" in rule:
        while not Path(rule["until"]).exists():  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    status, answer = rule.get("status", 200), rule.get("body", "")
    if answer == "echo":
        answer = f"reply to {','.join(values)}"
    note({"event": "end", "status": status, "values": values})
    named = {"content-length": str(len(answer)), **rule.get("headers", {})}
    pairs = [(name.encode(), str(text).encode()) for name, text in named.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": answer.encode()})


if __name__ == "__main__":
    uvicorn.run(app, log_level="warning", **json.loads(sys.argv[3]))
