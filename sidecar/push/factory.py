"""Makes the pusher of a subscription, and loads what it needs for that."""

from sidecar.model.errors import StartError
from sidecar.observability.tracing import Tracer
from sidecar.push.app import App
from sidecar.push.fastcgi import FastCgiApp
from sidecar.push.grpc import GrpcApp
from sidecar.push.pusher import Pusher
from sidecar.subscription.subscription import Subscription

_INSTALL = "pip install 'offramp-sidecar[push]' or, in a container, an image that was built with EXTRAS=push"


def create(subscription: Subscription, tracer: Tracer | None) -> Pusher:
    """For a subscription with `push`. Raises `StartError` if its settings cannot be met."""
    return Pusher(subscription, _app(subscription), tracer)


def _app(subscription: Subscription) -> App:
    settings = subscription.settings
    if settings.push.fastcgi:
        return FastCgiApp(settings.name, settings.push, subscription.clock)
    if settings.push.grpc:
        return GrpcApp(settings.name, settings.push)
    try:
        # Only here, because aiohttp takes a quarter of a second and 13 MB.
        from sidecar.push.http import HttpApp  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if error.name != "aiohttp":
            raise
        key = f"subscriptions.{settings.name}.push.url"
        raise StartError(f"{key} is set, but aiohttp is not installed: {_INSTALL}") from error
    return HttpApp(settings.name, settings.push, subscription.clock)
