"""Names of topics, partitions and patterns."""

from sidecar.brokers.pulsar.topics import (
    admin_path,
    full_name,
    lane_for_key,
    parse_pattern,
    short_name,
    split_partition,
)


def test_names() -> None:
    assert full_name("orders", "public/default") == "persistent://public/default/orders"
    assert full_name("persistent://a/b/orders", "public/default") == "persistent://a/b/orders"
    assert short_name("persistent://public/default/orders", "public/default") == "orders"
    assert admin_path("persistent://a/b/orders") == "persistent/a/b/orders"
    assert split_partition("orders-partition-12") == ("orders", 12)
    assert split_partition("orders") == ("orders", -1)
    namespace, wanted = parse_pattern("^orders-.*", "public/default")
    assert namespace == "public/default"
    assert wanted.fullmatch("persistent://public/default/orders-eu")


def test_a_key_goes_where_the_java_client_sends_it() -> None:
    # "orders-7".hashCode() and "ключ".hashCode(), by Java.
    assert lane_for_key("orders-7", 1 << 31) == 1234322255
    assert lane_for_key("ключ", 1 << 31) == 33309882
