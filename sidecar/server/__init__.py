"""What a sidecar runs: gRPC, HTTP, authentication and the status page, from start to drain.

sidecar        the process: starts everything, downstream first, and stops it in reverse
subscriptions  the subscriptions by name and by lease, whatever their mode
grpc           the gRPC services, and the listeners that serve them
auth           who may call, and what they may do
event_loop     uvloop where it is installed, otherwise asyncio's own
unix_socket    a unix socket in a folder that apps may write to, held by one sidecar at a time
tcp_port       TCP ports: listening, and who else does
http           the HTTP server of probes, metrics and the status page
status_page    what people see in a browser
process        measurements of the process, and its exit
"""
