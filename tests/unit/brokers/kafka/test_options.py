"""Settings of Kafka, and the properties of librdkafka that they result in."""

from pathlib import Path

import pytest

from sidecar import config
from sidecar.brokers.kafka.options import (
    OWNED,
    GroupProtocol,
    KafkaOptions,
    Sasl,
    common_properties,
    consumer_properties,
    member_properties,
    producer_properties,
)
from sidecar.model.errors import ConfigError, Refused
from sidecar.settings import Settings


def options(**more: object) -> KafkaOptions:
    return KafkaOptions(**{"servers": ("a:1", "b:2"), **more})  # type: ignore[arg-type]


def load(folder: Path, text: str, **environ: str) -> Settings:
    file = folder / "c.yaml"
    file.write_text(text)
    return config.load(str(file), environ=environ)


def test_a_few_lines_are_enough(tmp_path: Path) -> None:
    settings = load(tmp_path, "brokers: {kafka: {servers: [k:9092]}}\nsubscriptions: {s: {broker: kafka, topics: [t]}}")
    assert settings.brokers["kafka"].options == KafkaOptions(servers=("k:9092",))


@pytest.mark.parametrize("name", OWNED)
def test_a_property_that_offramp_sets_is_refused_by_name_with_the_reason(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        options(properties={name: "x"})
    assert f'"{name}"' in str(caught.value)
    assert OWNED[name] in str(caught.value)
    with pytest.raises(ConfigError, match="property_files"):
        options(property_files={name: "x"})


def test_the_refusal_names_the_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, "brokers:\n  kafka:\n    servers: [k:1]\n    properties:\n      acks: '1'\n")
    assert "c.yaml:4: brokers.kafka.properties: " in str(caught.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"sasl": Sasl.PLAIN}, "username"),
        ({"sasl": Sasl.PLAIN, "username": "me"}, "password"),
        ({"sasl": Sasl.PLAIN, "username": "me", "password": "a", "password_file": "b"}, "password"),
        ({"username": "me"}, "sasl"),
        ({"tls_ca": "ca.pem"}, "tls"),
        ({"tls": True, "tls_certificate": "me.pem"}, "tls_key"),
        ({"properties": {"a b": "c"}}, "properties"),
        ({"properties": {"foo.bar": "1"}}, 'properties: "foo.bar"'),
        ({"properties": {"session.timeout.ms": "abc"}}, 'properties: "session.timeout.ms"'),
        # librdkafka reads 10.
        ({"properties": {"max.poll.interval.ms": "10m"}}, 'properties: "max.poll.interval.ms"'),
        ({"properties": {"security.protocol": "sasl"}}, 'properties: "security.protocol"'),
        ({"properties": {"default.topic.config": "x"}}, 'properties: "default.topic.config"'),
        ({"properties": {"error_cb": "x"}}, 'properties: "error_cb"'),
        ({"servers": ("http://kafka:9092",)}, "servers"),
        ({"servers": ("kafka:abc",)}, "servers"),
        ({"servers": ("a:1,b:c",)}, "servers"),
        ({"servers": ("",)}, "servers"),
        ({"properties": {"debug": "all"}, "property_files": {"debug": "y"}}, "property_files"),
    ],
)
def test_options_that_contradict_each_other_are_refused(given: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=f"^{said}: ") as caught:
        options(**given)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("server", ["kafka", "kafka:9092", "SASL_SSL://kafka:9092", "[::1]:9092", "[::1]", "a:1, b:2"])
def test_a_server_is_a_host_with_or_without_a_port(server: str) -> None:
    assert options(servers=(server,)).servers == (server,)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("compression.type", "zstd"),
        # Whether the file exists is a matter of the machine that it runs on.
        ("ssl.ca.location", "/there/is/none"),
        ("sasl.mechanism", "OAUTHBEARER"),
        # Less than the default of session.timeout.ms.
        ("max.poll.interval.ms", "20000"),
    ],
)
def test_a_property_that_librdkafka_knows_is_accepted(name: str, value: str) -> None:
    assert options(properties={name: value}).properties == {name: value}


def test_users_may_override_preferences() -> None:
    conf = member_properties(options(properties={"fetch.wait.max.ms": "7"}), "g", GroupProtocol.CONSUMER)
    assert conf["fetch.wait.max.ms"] == "7"
    assert conf["fetch.queue.backoff.ms"] == 1


@pytest.mark.parametrize("protocol", [GroupProtocol.CONSUMER, GroupProtocol.CLASSIC])
def test_a_member_commits_nothing_by_itself_and_sees_committed_records_only(protocol: GroupProtocol) -> None:
    conf = member_properties(options(group_instance_id="pod-0", rack="r1"), "g", protocol)
    expected = {
        "bootstrap.servers": "a:1,b:2",
        "group.id": "g",
        "group.protocol": protocol.value,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "group.instance.id": "pod-0",
        "client.rack": "r1",
    }
    assert expected.items() <= conf.items()
    assert ("partition.assignment.strategy" in conf) is (protocol is GroupProtocol.CLASSIC)


def test_a_consumer_outside_of_the_group_has_no_properties_of_a_member() -> None:
    conf = consumer_properties(options(group_instance_id="pod-0"), "g")
    assert "group.instance.id" not in conf
    assert "group.protocol" not in conf


def test_publishing_is_idempotent_and_safe() -> None:
    conf = producer_properties(options())
    assert {"enable.idempotence": True, "acks": "all", "partitioner": "murmur2_random"}.items() <= conf.items()


@pytest.mark.parametrize(
    ("tls", "sasl", "expected"),
    [
        (False, Sasl.NONE, "plaintext"),
        (True, Sasl.NONE, "ssl"),
        (False, Sasl.SCRAM_SHA_512, "sasl_plaintext"),
        (True, Sasl.PLAIN, "sasl_ssl"),
    ],
)
def test_the_security_protocol_follows_from_tls_and_sasl(tls: bool, sasl: Sasl, expected: str) -> None:
    login = {"username": "me", "password": "hunter2"} if sasl is not Sasl.NONE else {}
    conf = common_properties(options(tls=tls, sasl=sasl, **login))
    assert conf["security.protocol"] == expected
    assert conf.get("sasl.mechanism") == (sasl.value.upper() if login else None)


def test_secrets_come_from_files_that_are_read_each_time(tmp_path: Path) -> None:
    file = tmp_path / "password"
    given = options(
        sasl=Sasl.PLAIN, username="me", password_file=str(file), property_files={"ssl.key.password": str(file)}
    )
    for secret in ("one", "two"):
        file.write_text(f"{secret}\n")
        conf = common_properties(given)
        assert (conf["sasl.password"], conf["ssl.key.password"]) == (secret, secret)


def test_a_secret_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    given = options(sasl=Sasl.PLAIN, username="me", password_file=str(tmp_path / "missing"))
    with pytest.raises(Refused, match=r"missing cannot be read: No such file"):
        common_properties(given)


def test_a_password_from_the_environment_never_appears_in_an_error(tmp_path: Path) -> None:
    kafka = "{servers: [k:1], sasl: plain, password: '${PASSWORD}', properties: {sasl.password: '${PASSWORD}'}}"
    text = f"brokers: {{kafka: {kafka}}}"
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text, PASSWORD="hunter2")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("topics", "said"),
    [("^orders.*", "orders.offramp.retry"), ("^.*dead", "orders.offramp.dead"), ("^(", "is not a pattern")],
)
def test_a_pattern_that_matches_the_groups_own_topics_is_refused(tmp_path: Path, topics: str, said: str) -> None:
    text = f"brokers: {{kafka: {{servers: [k:1]}}}}\nsubscriptions: {{orders: {{broker: kafka, topics: ['{topics}']}}}}"
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    assert said in str(caught.value)
