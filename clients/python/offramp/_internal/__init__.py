"""What the public modules are built on. Not an interface: anything here may change in any release.

The walk of a batch: session (reads the stream) -> inbox -> worker or consumer -> outbox -> session (writes the stream).

    connection        one session after another, across restarts of the sidecar
    session           one Consume stream, from hello to its end
    credit            how many batches to ask for
    inbox             batches that wait for a worker, for threads and for asyncio
    outbox            settlements and extensions that are to be sent, or sent and not answered
    settlements       outcomes of records -> the settlements that are sent
    event_headers     headers that say what a message is about
    handlers          what a handler is, and how its end settles its batch
    background_loop   the event loop on which the blocking API talks to the sidecar
    backoff           pauses between attempts to reach the sidecar
    signal_safe       waiting in threads that stays correct when a signal handler raises
    stop_signals      draining on SIGTERM and SIGINT
    fork_safety       errors instead of hangs where gRPC is used after a fork
"""
