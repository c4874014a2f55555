"""The demo from the rise of the curtain to its fall. What is told afterwards is the checker's."""

import time
from dataclasses import replace

import grpc

from sidecar.cli.demo.acts import Acts
from sidecar.cli.demo.audience import Audience
from sidecar.cli.demo.cast import Actor, Cast, Fell, wait_for_socket
from sidecar.cli.demo.picture import pictures
from sidecar.cli.demo.plan import Folder, Plan, configuration

#: seconds
_START_WITHIN, _LEAVE_WITHIN = 60.0, 60.0


def play(plan: Plan, folder: Folder, audience: Audience) -> None:
    """Returns when all processes have ended. Raises `Fell` if one did so before its time."""
    folder.make()
    plan.save(folder)
    folder.config.write_text(configuration(plan, folder))
    with Cast(folder) as cast:
        sidecar = _start_sidecar(folder, cast, audience)
        acts = Acts(plan, folder, cast, audience.tell)
        try:
            _watch(plan, folder, cast, acts, audience)
        except grpc.RpcError as error:
            sidecar.wait(_LEAVE_WITHIN)
            raise Fell("the sidecar ended before its time") from error
        _stop(sidecar, acts)


def _watch(plan: Plan, folder: Folder, cast: Cast, acts: Acts, audience: Audience) -> None:
    with grpc.insecure_channel(folder.address) as channel:
        for picture in pictures(channel):
            cast.check()
            goes_on = acts.go_on(picture)
            audience.show(replace(picture, killed=tuple(acts.killed)))
            if not goes_on:
                return
            if audience.elapsed > plan.patience:
                audience.tell(f"Not all is done after {plan.patience:.0f} s. The checker says what is missing.")
                return


def _start_sidecar(folder: Folder, cast: Cast, audience: Audience) -> Actor:
    audience.tell("A sidecar hands orders from a broker to worker processes, in batches.")
    began = time.monotonic()
    sidecar = cast.sidecar()
    wait_for_socket(folder.socket, sidecar, _START_WITHIN)
    took = time.monotonic() - began
    audience.tell(f"The sidecar is up after {took:.1f} s: a unix socket, and SQLite as its broker.")
    return sidecar


def _stop(sidecar: Actor, acts: Acts) -> None:
    """The workers first: what they hold, they settle with a sidecar that still listens."""
    for worker in acts.workers.values():
        worker.ask_to_leave()
    for worker in acts.workers.values():
        worker.wait(_LEAVE_WITHIN)
    sidecar.ask_to_leave()
    sidecar.wait(_LEAVE_WITHIN)
