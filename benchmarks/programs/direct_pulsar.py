"""The baseline on Pulsar: a pulsar-client consumer that receives in batches, its fastest way, and acks each message.
`python -m benchmarks.programs.direct_pulsar URL TOPIC KIND RECORDS`."""

import sys
import time

import _pulsar
import pulsar

from benchmarks.programs import print_result


def main(url: str, topic: str, kind: str, records: int) -> None:
    cpu = time.process_time()
    client = pulsar.Client(url, logger=pulsar.FileLogger(_pulsar.LoggerLevel.Error, "/dev/null"))
    consumer = client.subscribe(
        topic,
        f"direct-{time.time_ns()}",
        getattr(pulsar.ConsumerType, kind),
        receiver_queue_size=1000,
        initial_position=pulsar.InitialPosition.Earliest,
        batch_receive_policy=pulsar.ConsumerBatchReceivePolicy(500, 10 << 20, 10),
    )
    consumer.acknowledge(consumer.receive())
    began = time.perf_counter()
    left = records - 1
    while left:
        for message in consumer.batch_receive():
            message.data()
            consumer.acknowledge(message)
            left -= 1
    ended = time.perf_counter()
    print_result(records=records, seconds=ended - began, cpu=time.process_time() - cpu)
    client.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
