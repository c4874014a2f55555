"""A Pulsar. How far the group is comes from the admin API, asked again and again while a round is played."""

import http.client
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

from tests.chaos.acts import Act
from tests.chaos.history import RETRY, TOPIC, Claim, Stock, Stored
from tests.chaos.line import Line
from tests.chaos.plan import SESSION, Plan
from tests.chaos.stages.base import Scene, Stage, topic_of
from tests.chaos.stages.letters import letter_of, stay_of
from tests.e2e.pulsar.stock import all_of, client_of, cursor_of, lanes_of, spot_of
from tests.servers.process import free_ports
from tests.servers.pulsar import PulsarServer


class PulsarStage(Stage):
    # Set back by a day, it tries again a day later.
    cannot: Mapping[Act, str] = {Act.JUMP_CLOCK: "the waits of Pulsar's library go by the time of day"}
    server: PulsarServer
    line: Line

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        by = f"127.0.0.1:{free_ports(1)[0]}"
        pings = {"keepAliveIntervalSeconds": f"{SESSION:.0f}"}
        self.server = PulsarServer.create(folder / "pulsar", proxied=by, properties=pings)
        self.line = Line(f"127.0.0.1:{self.server.ports.broker}", by)
        self.server.start()

    def scene(self, plan: Plan, folder: Path) -> Scene:
        topic = topic_of(plan)
        self.server.make_topic(topic, plan.lanes)
        return PulsarScene(self, topic, plan)


class PulsarScene(Scene):
    def __init__(self, stage: PulsarStage, topic: str, plan: Plan) -> None:
        super().__init__(topic)
        self._server = stage.server
        self._line = stage.line
        self._plan = plan

    @property
    def broker_settings(self) -> Mapping[str, Any]:
        return {
            "type": "pulsar",
            "url": f"pulsar://{self._line.address}",
            "admin_url": self._server.admin_url,
            "subscription_type": self._plan.variant,
            # Little, so that every sidecar has something.
            "receiver_queue": 50,
        }

    def publisher_address(self, socket: str) -> str:
        return f"pulsar://{self._line.address}"

    def claims(self) -> list[Claim]:
        try:
            return [*self._claims(TOPIC, self.topic), *self._claims(RETRY, self._retry)]
        except http.client.HTTPException as error:
            raise OSError(str(error)) from error

    def is_done(self) -> bool:
        try:
            return all(self._server.backlog(topic, self.group) == 0 for topic in (self.topic, self._retry))
        except (OSError, http.client.HTTPException):
            return False

    def stock(self) -> Stock:
        stock = Stock(claims=self.claims())
        with client_of(self._server) as client:
            for lane, partition in lanes_of(self._server, self.topic):
                for message in all_of(client, partition):
                    stored = Stored(message.partition_key() or None, message.data().decode())
                    stock.records[spot_of(lane, message.message_id())] = stored
            for _, partition in lanes_of(self._server, f"{self.group}.offramp.dead"):
                for message in all_of(client, partition):
                    value = message.data().decode()
                    stock.letters.append(letter_of(message.partition_key() or None, value, message.properties()))
            for lane, partition in lanes_of(self._server, self._retry):
                for message in all_of(client, partition):
                    stock.stays.append(stay_of(spot_of(lane, message.message_id()), message.properties()))
        return stock

    @property
    def _retry(self) -> str:
        return f"{self.group}.offramp.retry"

    def _claims(self, kind: str, topic: str) -> Iterator[Claim]:
        for lane, partition in lanes_of(self._server, topic):
            try:
                runs = cursor_of(self._server, self.group, partition).runs()
            except HTTPError:
                # Nobody has been at it since the broker came back.
                continue
            yield Claim(time.monotonic(), kind, lane, runs)
