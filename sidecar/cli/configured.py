"""The settings that a command line means."""

import argparse

from sidecar import config
from sidecar.model.errors import ConfigError
from sidecar.settings import Settings


def configured(args: argparse.Namespace) -> tuple[str, Settings]:
    """What the settings are from, for people, and the settings. Raises `ConfigError`, also if there are none at all."""
    path = args.config or config.find()
    settings = config.load(path, options=args.options)
    if path is None and not settings.subscriptions:
        raise ConfigError(
            f"no configuration: neither {' nor '.join(config.DEFAULT_PATHS)} is there; name one with -c, "
            "or start from what `offramp lint --example` prints"
        )
    return path or "the environment", settings
