"""A gRPC server that answers as its rules say, and notes every call; see `tests.e2e.push.app`."""

import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

from offramp.v1 import handler_pb2, handler_pb2_grpc, record_pb2

RULES, JOURNAL, OPTIONS = Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3])


def note(**event: object) -> None:
    line = json.dumps({"pid": os.getpid(), "at": time.monotonic(), **event}).encode() + b"\n"
    file = os.open(JOURNAL, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, line)
    os.close(file)


class Handler(handler_pb2_grpc.HandlerServiceServicer):
    def Handle(  # noqa: N802
        self, request: handler_pb2.HandleRequest, context: grpc.ServicerContext
    ) -> handler_pb2.HandleResponse:
        values = [record.value.decode() for record in request.batch.records]
        rules = json.loads(RULES.read_text())
        rule = rules.get(next((one for one in values if one in rules), "*"), {})
        flagged = any(one.possibly_processed for one in request.batch.redeliveries)
        note(event="begin", values=values, subscription=request.subscription, flagged=flagged)
        if rule.get("die"):
            os.kill(os.getpid(), 9)
        time.sleep(rule.get("sleep", 0))
        if "code" in rule:
            context.abort(grpc.StatusCode[rule["code"]], "as the rule says")
        note(event="end", values=values, status=200)
        parts = [record_pb2.Part(**part) for part in rule.get("parts", [])]
        return handler_pb2.HandleResponse(outcome=rule.get("outcome", record_pb2.OUTCOME_ACK), parts=parts)


if __name__ == "__main__":
    server = grpc.server(ThreadPoolExecutor(32))
    if OPTIONS.get("serves", True):
        handler_pb2_grpc.add_HandlerServiceServicer_to_server(Handler(), server)
    server.add_insecure_port(f"unix:{OPTIONS['uds']}")
    server.start()
    server.wait_for_termination()
