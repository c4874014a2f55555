"""The servers of the tests are what they say."""

from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from tests.servers.fixtures import NewKafka
from tests.servers.kafka import ADMIN, QUIET, KafkaServer
from tests.servers.maven import Jars, _checked
from tests.servers.process import await_
from tests.servers.tools import Missing, give_up


def test_jars_that_were_damaged_are_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    jars = Jars("small", "1", ["org.slf4j:slf4j-api:1.7.36"])
    try:
        (jar,) = jars.fetch().glob("*.jar")
    except Missing as missing:
        give_up(missing)
    whole = jar.read_bytes()
    jar.write_bytes(whole[:-1] + b"?")
    _checked.discard(jars.folder)
    assert (jars.fetch() / jar.name).read_bytes() == whole
    # Nothing half is left beside it.
    assert {path.name for path in (tmp_path / "offramp").iterdir()} == {"small-1", "small-1.lock"}


@pytest.mark.parametrize("mechanism", ["", "PLAIN", "SCRAM-SHA-256"])
@pytest.mark.parametrize("tls", [False, True])
def test_kafka_answers_on_each_of_its_listeners(kafka: KafkaServer, mechanism: str, tls: bool) -> None:
    settings = kafka.settings(tls=tls, user=ADMIN if mechanism else None, mechanism=mechanism)
    assert Producer(settings, logger=QUIET).list_topics(timeout=10).brokers


def test_kafka_refuses_a_wrong_password(kafka: KafkaServer) -> None:
    settings = kafka.settings(user=ADMIN._replace(password="wrong"), mechanism="PLAIN")
    said: list[KafkaError] = []
    producer = Producer({**settings, "error_cb": said.append}, logger=QUIET)
    with pytest.raises(KafkaException):
        producer.list_topics(timeout=2)
    await_(lambda: producer.poll(0.1) or said, "it is refused")
    assert said[0].code() == KafkaError._AUTHENTICATION


def test_what_kafka_acknowledged_survives_kill_9(new_kafka: NewKafka) -> None:
    kafka = new_kafka()
    values = [str(number).encode() for number in range(100)]
    kafka.make_topic("topic")
    kafka.publish("topic", *values)
    kafka.restart()
    consumer = Consumer(
        {**kafka.settings(), "group.id": "group", "auto.offset.reset": "earliest", "enable.auto.commit": False},
        logger=QUIET,
    )
    consumer.subscribe(["topic"])
    found: list[bytes | None] = []
    while len(found) < 100:
        (message,) = consumer.consume(1, 20.0)
        assert message.error() is None
        found.append(message.value())
    consumer.close()
    assert found == values
