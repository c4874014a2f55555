"""`grpc.health.v1`, over a real connection within one process."""

import asyncio

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.unit.server.grpc.service_kit import Kit, ended, with_sidecar

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@with_sidecar()
async def test_health_knows_the_sidecar_its_services_and_its_subscriptions(kit: Kit) -> None:
    await kit.until(lambda status: status.lanes)
    health = health_pb2_grpc.HealthStub(kit.channel)
    for name in ("", "offramp.v1.ConsumerService", "offramp.v1.AdminService", "subscription/orders"):
        answer = await health.Check(health_pb2.HealthCheckRequest(service=name))
        assert (name, answer.status) == (name, SERVING)
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await health.Check(health_pb2.HealthCheckRequest(service="subscription/nope"))
    assert raised.value.code() == grpc.StatusCode.NOT_FOUND


@with_sidecar()
async def test_health_can_be_watched_and_says_when_the_sidecar_drains(kit: Kit) -> None:
    await kit.publish([b"a"])
    stream = await kit.stream()
    await stream.batch()
    watch = health_pb2_grpc.HealthStub(kit.channel).Watch(health_pb2.HealthCheckRequest())
    assert (await watch.read()).status == SERVING
    stop = asyncio.create_task(kit.sidecar.stop(1.0))
    assert (await watch.read()).status == NOT_SERVING
    assert await ended(watch) == grpc.StatusCode.OK
    await stop
