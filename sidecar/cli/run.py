"""
Run the sidecar until it is told to stop (SIGTERM or Ctrl-C), then drain and leave.

  offramp run -c offramp.yaml
  offramp run -c offramp.yaml --set log.level=debug
  OFFRAMP_SUBSCRIPTIONS__ORDERS__TOPICS=orders offramp run
"""

import argparse

from sidecar import config, server
from sidecar.cli.parser import add_config
from sidecar.errors import ConfigError


def arguments(parser: argparse.ArgumentParser) -> None:
    add_config(parser)


def run(args: argparse.Namespace) -> int:
    path = args.config or config.find()
    settings = config.load(path, options=args.options)
    if path is None and not settings.subscriptions:
        raise ConfigError(
            f"no configuration: neither {' nor '.join(config.DEFAULT_PATHS)} is there; name one with -c, "
            "or start from what `offramp lint --example` prints"
        )
    return server.run(settings)
