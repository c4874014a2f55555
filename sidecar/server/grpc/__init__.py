"""The gRPC services: they translate between calls and subscriptions.

listeners         each socket and port as a gRPC server, with its guard and its limits
socket_server     the gRPC server of a unix socket, and another one when the socket is lost
rpc               how a call begins and ends: bytes in, bytes out
statuses          errors as statuses, for people and for programs
entries           how many entries a request may have
slow_clients      limits on what clients leave unread
requests          fields of requests, checked
responses         fields of responses, encoded
consumer          ConsumerService: how workers take batches and settle them
publish_service   PublishService
admin_service     AdminService, and statuses as messages
log_service       LogService: ranges
read_slots        how many ranges of a subscription are read at a time
health_service    grpc.health.v1
reflection        server reflection, v1 and v1alpha
"""
