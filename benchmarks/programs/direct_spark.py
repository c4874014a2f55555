"""The baseline on Spark: tasks that read lanes with confluent-kafka, as one would write them without a source.

A module of its own, so that Spark's workers import it by name. A function of the program that is run would be sent to
them by value, together with confluent-kafka's `Consumer`, which cannot be: its module, `cimpl`, has no name to import.
"""

from collections.abc import Iterator

import pyarrow as pa
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

#: records per Arrow batch
_CHUNK = 10_000


def read_lanes(kafka: str, topic: str, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """All records of the lanes with these numbers, with a tuned consumer. For `mapInArrow`."""
    settings = {"bootstrap.servers": kafka, "group.id": "benchmark", "enable.auto.commit": False}
    consumer = Consumer({**settings, "fetch.queue.backoff.ms": 1, "queued.min.messages": 1_000_000})
    for number in (int(one) for batch in numbers for one in batch.column(0).to_pylist()):
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING)])
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=30)
        position = 0
        while position < end:
            messages = consumer.consume(_CHUNK, 0.1)
            if not messages:
                continue
            position = (messages[-1].offset() or 0) + 1
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array([one.key() for one in messages], pa.binary()),
                    pa.array([one.value() for one in messages], pa.binary()),
                    pa.array([topic] * len(messages), pa.string()),
                    pa.array([one.timestamp()[1] * 1_000 for one in messages], pa.timestamp("us", "UTC")),
                ],
                ["key", "value", "topic", "timestamp"],
            )
    consumer.close()
