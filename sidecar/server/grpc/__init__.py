"""gRPC: stream <-> subscription, nothing else.

services      all services on one server, and the server's options
rpc           how a call begins and ends: bytes in, bytes out, errors as statuses
writer        answers to a client that may not read
directory     which subscription a name or a lease belongs to
consumer      ConsumerService: who may come in, and which way
  consume     one stream for a process with many workers; its frames come from `outbox`
  fetch       sessions for processes that block, and calls without one; both wait in `pull`
  clients     who a client is and what it takes
  settlements what workers say, checked
  encode      answers as fields of responses
  notices     what a client is told when it next looks
  ending      how a session ends
publish       PublishService
admin         AdminService, with `status_wire`
log           LogService, which is not served yet
health        grpc.health.v1
"""
