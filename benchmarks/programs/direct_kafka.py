"""The baseline on Kafka: a tuned confluent-kafka consumer, in batches of 500, that commits as often as the sidecar.
`python -m benchmarks.programs.direct_kafka SERVERS TOPIC RECORDS`."""

import sys
import time

from confluent_kafka import Consumer, Message

from benchmarks.programs import print_result

_BATCH = 500
#: seconds between commits
_COMMIT_EVERY = 0.1
_TIMEOUT = 60.0


def join(servers: str, topic: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": f"direct-{time.time_ns()}",
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            # Tuned: with its defaults it waits more than it works.
            "queued.min.messages": 1_000_000,
            "fetch.queue.backoff.ms": 1,
        }
    )
    consumer.subscribe([topic])
    return consumer


def next_records(consumer: Consumer) -> list[Message]:
    """All records that are available, as soon as there is one."""
    first = consumer.poll(_TIMEOUT)
    if first is None:
        raise TimeoutError("no record arrives")
    return [first, *consumer.consume(_BATCH - 1, 0)]


def main(servers: str, topic: str, records: int) -> None:
    cpu = time.process_time()
    consumer = join(servers, topic)
    got = 0
    began = committed = 0.0
    while got < records:
        messages = next_records(consumer)
        now = time.perf_counter()
        began = began or now
        for message in messages:
            got += len(message.value() or b"") > 0
        if now - committed > _COMMIT_EVERY:
            committed = now
            consumer.commit(asynchronous=True)
    ended = time.perf_counter()
    consumer.close()
    print_result(records=got, seconds=ended - began, cpu=time.process_time() - cpu)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
