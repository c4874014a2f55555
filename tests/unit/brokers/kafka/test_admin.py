"""How the cluster is asked to describe itself."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin._metadata import BrokerMetadata, ClusterMetadata

from sidecar.brokers.kafka.admin import Admin
from sidecar.brokers.kafka.library_logs import LibraryClients
from sidecar.brokers.kafka.options import KafkaOptions
from sidecar.model.errors import Refused, Unavailable

LATE = KafkaException(KafkaError(KafkaError._TIMED_OUT))


class Library:
    """Stands in for the admin client; answers in this order."""

    def __init__(self, *answers: ClusterMetadata | KafkaException) -> None:
        self._answers: Iterator[ClusterMetadata | KafkaException] = iter(answers)

    def list_topics(self, *_: Any, **__: Any) -> ClusterMetadata:
        answer = next(self._answers)
        if isinstance(answer, KafkaException):
            raise answer
        return answer

    def poll(self, _: float) -> None:
        pass


def cluster(brokers: int) -> ClusterMetadata:
    made = ClusterMetadata()
    made.cluster_id = "c"
    made.brokers = dict.fromkeys(range(brokers), BrokerMetadata())
    return made


def admin_of(*answers: ClusterMetadata | KafkaException, recent_error: KafkaError | None = None) -> Admin:
    clients = LibraryClients(KafkaOptions(servers=("127.0.0.1:1",)))
    if recent_error is not None:
        clients.recent_errors.add(recent_error)
    admin = Admin(clients)
    admin._client = Library(*answers)  # type: ignore[assignment]
    return admin


def test_a_cluster_that_answers_late_is_asked_again() -> None:
    assert asyncio.run(admin_of(LATE, LATE, LATE, cluster(3)).connect()) == {"cluster": "c", "brokers": "3"}


def test_a_cluster_that_never_answers_is_unavailable() -> None:
    with pytest.raises(Unavailable, match="no broker answers in time"):
        asyncio.run(admin_of(LATE, LATE, LATE, LATE).connect())


def test_a_known_cause_is_reported_at_once() -> None:
    with pytest.raises(Refused, match="the login was refused"):
        asyncio.run(admin_of(LATE, recent_error=KafkaError(KafkaError._AUTHENTICATION)).connect())


def test_a_broker_that_knows_of_no_brokers_is_not_a_cluster_yet() -> None:
    with pytest.raises(Unavailable, match="knows of no brokers yet"):
        asyncio.run(admin_of(cluster(0)).connect())
