"""ConsumerService: how workers take batches and settle them.

service          admission, and which way a worker takes batches
consume_stream   one stream for a process with many workers, and its outbox
fetch_session    sessions and calls for processes that block, and the wait for batches
sessions         how a worker's session begins and ends, in either way
resumption       sessions that outlive their connection, until their clients resume them
pending_notices  notices for a client that does not read them now
settling         settlements and extensions of a request, applied in pieces
"""
