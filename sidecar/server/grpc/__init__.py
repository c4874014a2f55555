"""The gRPC services: they translate between calls and subscriptions.

listeners         each socket and port as a gRPC server, with its guard and its limits
socket_server     the gRPC server of a unix socket, and another one when the socket is lost
rpc               how a call begins and ends: bytes in, bytes out
statuses          errors as statuses, for people and for programs
entries           how many entries a request may have
slow_clients      limits on what clients leave unread
requests          fields of requests, checked
settling          settlements and extensions of a request, applied in pieces
responses         fields of responses, encoded
consumer_service  ConsumerService: admission, and which way a worker takes batches
consume_stream    one stream for a process with many workers, and its outbox
fetch_session     sessions and calls for processes that block, and the wait for batches
sessions          how a worker's session begins and ends, in either way
resumption        sessions that outlive their connection, until their clients resume them
pending_notices   notices for a client that does not read them now
publish_service   PublishService
admin_service     AdminService, and statuses as messages
log_service       LogService: ranges
read_slots        how many ranges of a subscription are read at a time
health_service    grpc.health.v1
reflection        server reflection, v1 and v1alpha
"""
