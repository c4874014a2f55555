"""A producer that sends records at a fixed rate, with the time in their values.
`python -m benchmarks.programs.paced SERVERS TOPIC RECORDS RATE`.

The time is when a record was due, so a producer that falls behind shows as latency. It prints how late it was itself.
"""

import sys
import time

from confluent_kafka import Producer

from benchmarks.programs import percentile, print_result


def main(servers: str, topic: str, records: int, rate: float) -> None:
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
    # Connects and finds the leader of the partition before the first record is due.
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
    print_result(late_p50=percentile(late, 0.5), late_p99=percentile(late, 0.99))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
