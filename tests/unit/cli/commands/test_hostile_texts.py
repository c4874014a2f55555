"""Names and reasons come from apps and producers: no command lets them control a terminal or forge a line."""

import json
import os

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from offramp.v1 import admin_pb2 as admin
from sidecar import cli
from tests.unit.cli.commands.test_top import on_a_terminal
from tests.unit.cli.fake_sidecar import FakeSidecar

HOSTILE = "web\x1b[1A\x9b2K\x07\u202e\nforged\x85line\x7f"


def poison(message: Message, depth: int = 0) -> None:
    """Sets every text in a message, whatever its fields are."""
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            value[HOSTILE] = HOSTILE
        elif field.message_type is not None and depth < 3:
            poison(value.add() if hasattr(value, "add") else value, depth + 1)
        elif field.type == FieldDescriptor.TYPE_STRING:
            if hasattr(value, "append"):
                value.append(HOSTILE)
            else:
                setattr(message, field.name, HOSTILE)


@pytest.fixture
def poisoned(sidecar: FakeSidecar) -> FakeSidecar:
    letter = admin.DeadLetter()
    poison(sidecar.admin.status)
    poison(letter)
    letter.record.value = HOSTILE.encode()
    sidecar.admin.dead_letters = [letter]
    return sidecar


@pytest.mark.parametrize(
    "command", [["status"], ["dead-letters", "orders"], ["dead-letters", "orders", "--id", HOSTILE]]
)
def test_a_command_prints_no_control_character(
    poisoned: FakeSidecar, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    assert cli.main(command) == 0
    lines = capsys.readouterr().out.split("\n")
    assert [line for line in lines if not line.isprintable()] == []
    assert [line for line in lines if line.startswith("forged")] == []
    assert any("web" in line for line in lines)


@pytest.mark.parametrize(
    ("command", "field"), [(["status", "--json"], "version"), (["dead-letters", "orders", "--json"], "reason")]
)
def test_json_loses_nothing_and_controls_nothing(
    poisoned: FakeSidecar, capsys: pytest.CaptureFixture[str], command: list[str], field: str
) -> None:
    assert cli.main(command) == 0
    (line,) = capsys.readouterr().out.rstrip("\n").split("\n")
    assert line.isprintable()
    assert json.loads(line)[field] == HOSTILE


def test_an_error_of_the_sidecar_stays_one_line(sidecar: FakeSidecar, capsys: pytest.CaptureFixture[str]) -> None:
    sidecar.admin.error = (grpc.StatusCode.NOT_FOUND, HOSTILE)
    assert cli.main(["status"]) == 1
    said = capsys.readouterr().err.removesuffix("\n")
    assert said.startswith("offramp: web")
    assert said.isprintable()


def test_the_live_view_draws_no_control_character_but_its_own(poisoned: FakeSidecar) -> None:
    with on_a_terminal() as (process, terminal):
        poisoned.admin.watched.put(poisoned.admin.status)
        terminal.wait_for("forged")
        os.write(terminal.fd, b"q")
        terminal.wait_for("\x1b[?1049l")
        assert process.wait(30) == 0
    assert not set("\x07\x85\x9b\x7f\u202e") & set(terminal.drawn)
    assert "web\x1b" not in terminal.drawn
