"""A tiny collector of spans: `python -m tests.e2e.collector FILE` takes OTLP over HTTP and writes a line for each span.

It listens on a port that the kernel chose, and says which on standard output.
"""

import gzip
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


class Collector(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        if self.path != "/v1/traces":
            self.send_error(404)
            return
        with Path(sys.argv[1]).open("a") as file:
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                service = {one.key: one.value.string_value for one in resource.resource.attributes}
                for scope in resource.scope_spans:
                    for span in scope.spans:
                        links = [link.trace_id.hex() for link in span.links]
                        said = {
                            "name": span.name,
                            "kind": span.kind,
                            "links": links,
                            "trace": span.trace_id.hex(),
                            "span": span.span_id.hex(),
                            "parent": span.parent_span_id.hex(),
                            "service": service["service.name"],
                        }
                        file.write(json.dumps(said) + "\n")
        answer = ExportTraceServiceResponse().SerializeToString()
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        print(server.server_address[1], flush=True)
        server.serve_forever()
