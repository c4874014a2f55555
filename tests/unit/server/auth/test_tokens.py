"""Tokens that are found, rotated and revoked."""

import asyncio
from pathlib import Path

from sidecar.model.errors import Stopping
from sidecar.server.auth.caller import Caller
from sidecar.server.auth.tokens import Tokens
from tests.unit.server.auth.token_kit import NEW, OLD, OTHER, read


def found(held: Tokens, token: bytes) -> Caller:
    caller = held.caller(token)
    assert caller is not None
    return caller


def test_tokens_are_found_whole_and_alone(tmp_path: Path) -> None:
    held = read(tmp_path, app=OLD + b"\n" + NEW + b"\n", other=OTHER)
    assert found(held, OLD).who == found(held, NEW).who == 'client "app"'
    assert found(held, OTHER).who == 'client "other"'
    for wrong in (b"", OLD[:-1], OLD + b"x", OLD + b"\n" + NEW, OLD.upper()):
        assert held.caller(wrong) is None
    assert OLD.decode() not in repr(vars(held))


def revoked(caller: Caller) -> bool:
    async def call() -> None:
        with caller.calling():
            pass

    try:
        asyncio.run(call())
    except Stopping:
        return True
    return False


def test_a_rotation_keeps_who_stays_and_revokes_who_is_gone(tmp_path: Path) -> None:
    before = read(tmp_path, app=OLD, other=OTHER)
    old, other = found(before, OLD), found(before, OTHER)
    after = read(tmp_path, app=NEW, other=OTHER)
    assert not after.same_as(before)
    after.replace(before)
    assert revoked(old)
    assert found(after, OTHER) is other
    assert not revoked(other)
    assert after.same_as(read(tmp_path, app=NEW, other=OTHER))


def test_a_token_that_moves_to_another_client_has_the_rights_of_that_one(tmp_path: Path) -> None:
    before = read(tmp_path, app=OLD, other=OTHER)
    after = read(tmp_path, app=OTHER, other=OLD)
    after.replace(before)
    assert found(after, OLD).who == 'client "other"'
    assert found(after, OTHER).who == 'client "app"'
