"""A producer that sends one record each millisecond, or as told, with the time in it.
`python -m benchmarks.programs.paced SERVERS TOPIC RECORDS RATE`.

The time is that at which a record was due, so a producer that falls behind shows as latency, and not as a pause in
which nobody looked. How late it was itself is what it prints.
"""

import sys
import time

from confluent_kafka import Producer

from benchmarks.programs import say
from benchmarks.programs.shares import share


def main(servers: str, topic: str, records: int, rate: float) -> None:
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
    # Connects, and learns who leads the partition, before the first record is due.
    producer.list_topics(topic, timeout=30.0)
    late = []
    began = time.monotonic_ns()
    for number in range(records):
        due = began + int(number * 1e9 / rate)
        while (wait := due - time.monotonic_ns()) > 0:
            time.sleep(wait / 1e9)
        late.append((time.monotonic_ns() - due) / 1e6)
        producer.produce(topic, str(due).encode(), partition=0)
        producer.poll(0)
    producer.flush(60.0)
    say(late_p50=share(late, 0.5), late_p99=share(late, 0.99))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
