"""Fills topics, in batches and with keys, as busy producers do."""

import threading

import _pulsar
import pulsar
from confluent_kafka import Producer

import offramp
from tests.servers.kafka import QUIET, KafkaServer
from tests.servers.pulsar import PulsarServer

_PATIENCE = 300.0
_KEYS = [f"key-{number}" for number in range(1_000)]


def kafka(server: KafkaServer, topic: str, *, lanes: int, records: int, size: int) -> None:
    server.make_topic(topic, lanes)
    settings = {**server.settings(), "linger.ms": 20, "batch.size": 1 << 20, "queue.buffering.max.kbytes": 256 << 10}
    producer = Producer(settings, logger=QUIET)
    value = b"x" * size
    for number in range(records):
        while True:
            try:
                producer.produce(topic, value, _KEYS[number % 1_000], number % lanes)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(_PATIENCE):
        raise RuntimeError(f"{topic} could not be filled")


def pulsar_topic(server: PulsarServer, topic: str, *, lanes: int, records: int, size: int) -> None:
    server.make_topic(topic, lanes)
    client = pulsar.Client(server.url, logger=pulsar.FileLogger(_pulsar.LoggerLevel.Error, "/dev/null"))
    # Pulsar may remove what every subscription has acked; this one never acks.
    client.subscribe(topic, "keeper", initial_position=pulsar.InitialPosition.Earliest, receiver_queue_size=1).close()
    producer = client.create_producer(
        topic,
        batching_enabled=True,
        batching_max_publish_delay_ms=5,
        block_if_queue_full=True,
        message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution,
    )
    room = threading.Semaphore(5_000)
    value = b"x" * size
    for number in range(records):
        room.acquire()
        producer.send_async(value, lambda result, id_: room.release(), partition_key=_KEYS[number % 1_000])
    producer.flush()
    client.close()


def local(address: str, topic: str, *, records: int, size: int) -> None:
    value = b"x" * size
    messages = [offramp.Message(value, key=key.encode()) for key in _KEYS]
    with offramp.Publisher(broker="local", address=address) as publisher:
        for first in range(0, records, len(messages)):
            publisher.publish_many(topic, messages[: records - first])
