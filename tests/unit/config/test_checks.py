"""Rules between settings."""

import pytest

from tests.unit.config.kit import problems

pytestmark = pytest.mark.usefixtures("folder")


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ("lease: {default: 2h}", "lease.default: 2h is more than lease.max, which is 1h"),
        ("lease: {max: 10s}", "lease.default: 30s is more than lease.max, which is 10s"),
        ("retry: {first: 10m}", "retry.first: 10m is more than retry.max, which is 5m"),
        ("outage: {probe_max: 1ms}", "outage.probe_first: 500ms is more than outage.probe_max, which is 1ms"),
        (
            "batch: {records: 501}, window: {records: 500}",
            "batch.records: 501 is more than window.records, which is 500",
        ),
        (
            "batch: {bytes: 65MiB}, memory: {bytes: 1GiB}",
            "batch.bytes: 65MiB is more than window.bytes, which is 64MiB",
        ),
        (
            "batch: {bytes: 65MiB}, window: {bytes: 1GiB}",
            "batch.bytes: 65MiB is more than memory.bytes, which is 64MiB",
        ),
        ("window: {records: 200000}", "window.records: 200000 is more than window.span, which is 100000"),
        ("memory: {records: 3000}", "memory.poll_records: 2000 is more than half of memory.records, which is 3000"),
        ("memory: {poll_bytes: 40MiB}", "memory.poll_bytes: 40MiB is more than half of memory.bytes, which is 64MiB"),
        ("parking: {topic: a}", 'parking.topic: "a" is among the topics that the subscription consumes'),
        ("dead_letter: {topic: a}", 'dead_letter.topic: "a" is among the topics that the subscription consumes'),
        (
            "parking: {topic: z}, dead_letter: {topic: z}",
            'dead_letter.topic: "z" is the retry topic, too; they must differ',
        ),
        ("parking: {topic: ''}", "parking.topic: is empty; it takes the name of a topic"),
        (
            "dead_letter: {topic: '{name}.dead'}",
            'dead_letter.topic: "{name}.dead" has braces other than {group}, the only placeholder',
        ),
        ("broker: locla", 'broker: "locla" is not among brokers. Did you mean "local"?'),
    ],
)
def test_a_subscription_must_fit_together(keys: str, said: str) -> None:
    assert problems(f"subscriptions: {{s: {{topics: [a], {keys}}}}}") == [f"c.yaml:1: subscriptions.s.{said}"]


def test_a_problem_of_two_keys_points_at_the_nearest_one_that_was_written() -> None:
    assert problems("subscriptions:\n  s:\n    topics: [a]\n    lease:\n      max: 10s\n") == [
        "c.yaml:4: subscriptions.s.lease.default: 30s is more than lease.max, which is 10s"
    ]


def test_order_key_with_parking_on_is_fine() -> None:
    assert problems("subscriptions: {s: {topics: [a], order: key, parking: {enabled: on}}}") == []


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        ("order: key", "order"),
        ("oversized: hold", "oversized"),
        ("commit_every: 1s", "commit_every"),
        ("batch: {records: 10}", "batch"),
        ("window: {records: 600}", "window"),
        ("memory: {poll_records: 10}", "memory"),
        ("lease: {max: 2h}", "lease"),
        ("retry: {attempts: 7}", "retry"),
        ("outage: {enabled: off}", "outage"),
        ("budget: {concurrency: 4}", "budget"),
        ("parking: {enabled: off}", "parking.enabled"),
        ("parking: {lanes: 2}", "parking.lanes"),
    ],
)
def test_what_only_leases_need_is_a_mistake_with_ranges(keys: str, key: str) -> None:
    assert problems(f"subscriptions: {{s: {{topics: [a], mode: ranges, {keys}}}}}") == [
        f"c.yaml:1: subscriptions.s.{key}: has no effect with `mode: ranges`, where nothing is leased; leave it out"
    ]


def test_ranges_take_what_they_need() -> None:
    keys = "group: g, start: latest, commit_timeout: 5s, dead_letter: {topic: d}, parking: {topic: r}"
    assert problems(f"subscriptions: {{s: {{topics: [a], mode: ranges, {keys}}}}}") == []


def test_one_group_is_not_both_leased_and_read_by_ranges() -> None:
    lines = problems("subscriptions:\n  s: {topics: [a]}\n  t: {topics: [b], group: s, mode: ranges}\n")
    assert lines == [
        'c.yaml:3: subscriptions.t.group: "s" is the group of s, too; `mode: ranges` needs a group of its own'
    ]


def test_ranges_of_a_broadcast_make_no_sense() -> None:
    brokers = "brokers: {kafka: {servers: [k:1], broadcast: on}}"
    lines = problems(f"{brokers}\nsubscriptions: {{s: {{broker: kafka, topics: [a], mode: ranges}}}}")
    assert len(lines) == 1
    assert 'subscriptions.s.mode: "ranges" has one reader' in lines[0]


def test_one_group_cannot_consume_a_topic_twice() -> None:
    lines = problems("subscriptions:\n  s: {topics: [a, b]}\n  t: {topics: [b], group: s, parking: {topic: r}}\n")
    assert lines == ['c.yaml:3: subscriptions.t.topics: "b" is consumed by s already, under the same group "s"']


def test_two_groups_may_consume_the_same_topic() -> None:
    assert problems("subscriptions: {s: {topics: [a]}, t: {topics: [a]}}") == []


def test_two_subscriptions_cannot_share_a_retry_topic() -> None:
    lines = problems("subscriptions:\n  s: {topics: [a], group: g}\n  t: {topics: [b], group: g}\n")
    assert lines == [
        'c.yaml:3: subscriptions.t.parking.topic: "g.offramp.retry" is the retry topic of s, too: each would take the '
        "other's records"
    ]


def test_a_retry_topic_cannot_be_consumed_by_another_subscription() -> None:
    lines = problems("subscriptions:\n  s: {topics: [a]}\n  t: {topics: [s.offramp.retry]}\n")
    assert lines == [
        'c.yaml:2: subscriptions.s.parking.topic: "s.offramp.retry" is used by t, too; it must be this group\'s own'
    ]


def test_dead_letters_may_be_consumed_by_another_subscription() -> None:
    assert problems("subscriptions: {s: {topics: [a]}, t: {topics: [s.offramp.dead]}}") == []


NEEDS_BOTH = (
    "which requires TLS (listen.tls_certificate and listen.tls_key) and tokens (clients) or certificates of clients "
    "(listen.tls_client_ca); otherwise use a loopback address such as 127.0.0.1:4770"
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("listen: {socket: ''}", "listen.socket: is empty, and so is listen.tcp: apps could not connect"),
        ("listen: {socket: 'unix:/x'}", 'listen.socket: "unix:/x" is not a path; write it without unix:'),
        (
            f"listen: {{socket: /{'x' * 107}}}",
            "listen.socket: is longer than the 107 bytes that the path of a socket can have",
        ),
        (
            "listen: {tcp: '0.0.0.0:80'}",
            f'listen.tcp: "0.0.0.0:80" can be reached from other machines, {NEEDS_BOTH}',
        ),
        (
            "listen: {tcp: 'example.org:80'}",
            f'listen.tcp: "example.org:80" can be reached from other machines, {NEEDS_BOTH}',
        ),
        ("listen: {tcp: '127.0.0.1:4771'}", 'listen.tcp: "127.0.0.1:4771" is the address of http.address, too'),
    ],
)
def test_listeners_must_be_usable_and_safe(text: str, said: str) -> None:
    assert problems(text) == [f"c.yaml:1: {said}"]


@pytest.mark.parametrize("address", ["127.0.0.1:1", "localhost:1", "'[::1]:1'", "127.9.9.9:1", "127.0.0.1:0"])
def test_loopback_has_several_names(address: str) -> None:
    assert problems(f"listen: {{socket: '', tcp: {address}}}") == []


TLS = "tls_certificate: /c, tls_key: /k"
APP = "app: {token_file: /t, consume: [orders]}"
ORDERS = "subscriptions: {orders: {topics: [orders]}}"


@pytest.mark.parametrize(
    ("listen", "clients"),
    [
        (f"{{tcp: '0.0.0.0:80', {TLS}}}", f"{{{APP}}}"),
        (f"{{tcp: '0.0.0.0:80', {TLS}, tls_client_ca: /a}}", "{}"),
        (f"{{tcp: '127.0.0.1:80', {TLS}}}", "{}"),
        ("{authenticate: all}", f"{{{APP}}}"),
        ("{}", "{app: {token_file: /t, admin: '*'}}"),
    ],
)
def test_the_network_is_open_to_those_who_prove_who_they_are(listen: str, clients: str) -> None:
    assert problems(f"listen: {listen}\nclients: {clients}\n{ORDERS}") == []


@pytest.mark.parametrize(
    ("listen", "clients", "said"),
    [
        (
            f"{{tcp: '0.0.0.0:80', {TLS}}}",
            "{}",
            'listen.tcp: "0.0.0.0:80" can be reached from other machines, which requires tokens (clients) or '
            "certificates of clients (listen.tls_client_ca); otherwise use a loopback address such as 127.0.0.1:4770",
        ),
        (
            "{tcp: '0.0.0.0:80'}",
            f"{{{APP}}}",
            'listen.tcp: "0.0.0.0:80" can be reached from other machines, which requires TLS (listen.tls_certificate '
            "and listen.tls_key); otherwise use a loopback address such as 127.0.0.1:4770",
        ),
        (
            "{tcp: '127.0.0.1:80', tls_certificate: /c}",
            "{}",
            "listen.tls_key: is missing, but tls_certificate is set: a certificate and its key go together",
        ),
        (
            "{tcp: '127.0.0.1:80', tls_key: /k}",
            "{}",
            "listen.tls_certificate: is missing, but tls_key is set: a certificate and its key go together",
        ),
        (
            "{tcp: '127.0.0.1:80', tls_client_ca: /a}",
            "{}",
            "listen.tls_client_ca: asks clients for certificates, which requires tls_certificate",
        ),
        (f"{{{TLS}}}", "{}", "listen.tls_certificate: is for listen.tcp, which is empty"),
        ("{authenticate: all}", "{}", "listen.authenticate: is all, but there are no clients with tokens"),
        (
            "{socket: /s, admin_socket: /s}",
            "{}",
            'listen.admin_socket: "/s" is listen.socket, which is for apps',
        ),
    ],
)
def test_what_lets_nobody_or_anybody_in_is_refused(listen: str, clients: str, said: str) -> None:
    assert problems(f"listen: {listen}\nclients: {clients}\n{ORDERS}") == [f"c.yaml:1: {said}"]


@pytest.mark.parametrize(
    ("client", "said"),
    [
        ("{consume: [orders]}", "clients.app.token_file: is missing."),
        ("{token_file: '', consume: [orders]}", "clients.app.token_file: is empty; it takes the path of a file"),
        ("{token_file: /t}", "clients.app: has no rights: give it some of consume, publish, ranges, admin"),
        (
            "{token_file: /t, publish: [oders]}",
            'clients.app.publish: "oders" is not among subscriptions. Did you mean "orders"?',
        ),
        (
            "{token_file: /t, ranges: [zzz]}",
            'clients.app.ranges: "zzz" is not among subscriptions. There is orders, or * for all.',
        ),
    ],
)
def test_a_client_has_a_token_and_rights_that_mean_something(client: str, said: str) -> None:
    (found,) = problems(f"clients: {{app: {client}}}\n{ORDERS}")
    assert found.startswith(f"c.yaml:1: {said}")


def test_the_path_of_a_token_file_is_no_secret() -> None:
    assert problems(f"clients: {{app: {{token_file: [a], consume: [orders]}}}}\n{ORDERS}") == [
        "c.yaml:1: clients.app.token_file: a list is not text"
    ]


def test_a_collector_of_spans_is_an_address() -> None:
    assert problems("tracing: {endpoint: 'collector:4318'}") == [
        'c.yaml:1: tracing.endpoint: "collector:4318" is not the address of a collector, as in http://127.0.0.1:4318'
    ]
    assert problems("tracing: {endpoint: 'https://collector'}") == []
