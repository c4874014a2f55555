"""A Pulsar. How far the group is comes from the admin API, asked again and again while a round is played."""

import http.client
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

from tests.chaos.brokers.base import Broker, RoundTopic, name_of
from tests.chaos.brokers.side_topics import dead_letter_of, parked_record_of
from tests.chaos.checker.history import RETRY, TOPIC, BrokerSnapshot, Commit, Stored
from tests.chaos.faults import FaultKind
from tests.chaos.plan import SESSION, Plan
from tests.chaos.proxy_process import ProxyProcess
from tests.e2e.pulsar.snapshot import all_of, client_of, cursor_of, lanes_of, spot_of
from tests.servers.process import free_ports
from tests.servers.pulsar import PulsarServer


class PulsarBroker(Broker):
    # Set back by a day, it tries again a day later.
    cannot: Mapping[FaultKind, str] = {FaultKind.JUMP_CLOCK: "the waits of Pulsar's library go by the time of day"}
    server: PulsarServer
    proxy: ProxyProcess

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        by = f"127.0.0.1:{free_ports(1)[0]}"
        pings = {"keepAliveIntervalSeconds": f"{SESSION:.0f}"}
        self.server = PulsarServer.create(folder / "pulsar", proxied=by, properties=pings)
        self.proxy = ProxyProcess(f"127.0.0.1:{self.server.ports.broker}", by)
        self.server.start()

    def new_topic(self, plan: Plan, folder: Path) -> RoundTopic:
        name = name_of(plan)
        self.server.make_topic(name, plan.lanes)
        return PulsarTopic(self, name, plan)


class PulsarTopic(RoundTopic):
    def __init__(self, broker: PulsarBroker, name: str, plan: Plan) -> None:
        super().__init__(name)
        self._server = broker.server
        self._proxy = broker.proxy
        self._plan = plan

    def broker_settings(self, who: str) -> Mapping[str, Any]:
        return {
            "type": "pulsar",
            "url": f"pulsar://{self._proxy.address}",
            "admin_url": self._server.admin_url,
            "subscription_type": self._plan.variant,
            # Little, so that every sidecar has something.
            "receiver_queue": 50,
        }

    def publisher_address(self, socket: str) -> str:
        return f"pulsar://{self._proxy.address}"

    def commits(self) -> list[Commit]:
        try:
            return [*self._commits(TOPIC, self.name), *self._commits(RETRY, self._retry)]
        except http.client.HTTPException as error:
            raise OSError(str(error)) from error

    def is_done(self) -> bool:
        try:
            return all(self._server.backlog(topic, self.group) == 0 for topic in (self.name, self._retry))
        except (OSError, http.client.HTTPException):
            return False

    def snapshot(self) -> BrokerSnapshot:
        snapshot = BrokerSnapshot(commits=self.commits())
        with client_of(self._server) as client:
            for lane, partition in lanes_of(self._server, self.name):
                for message in all_of(client, partition):
                    stored = Stored(message.partition_key() or None, message.data().decode())
                    snapshot.records[spot_of(lane, message.message_id())] = stored
            for _, partition in lanes_of(self._server, f"{self.group}.offramp.dead"):
                for message in all_of(client, partition):
                    value = message.data().decode()
                    snapshot.dead_letters.append(
                        dead_letter_of(message.partition_key() or None, value, message.properties())
                    )
            for lane, partition in lanes_of(self._server, self._retry):
                for message in all_of(client, partition):
                    snapshot.parked.append(parked_record_of(spot_of(lane, message.message_id()), message.properties()))
        return snapshot

    @property
    def _retry(self) -> str:
        return f"{self.group}.offramp.retry"

    def _commits(self, kind: str, topic: str) -> Iterator[Commit]:
        for lane, partition in lanes_of(self._server, topic):
            try:
                runs = cursor_of(self._server, self.group, partition).runs()
            except HTTPError:
                # Nobody has been at it since the broker came back.
                continue
            yield Commit(time.monotonic(), kind, lane, runs)
