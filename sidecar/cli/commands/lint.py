"""
Check a configuration. Reports every mistake with its line, its key and what is allowed.

  offramp lint -c offramp.yaml
  offramp lint -c offramp.yaml --show      the settings in effect, with defaults, environment and --set
  offramp lint --example > offramp.yaml    every setting with its meaning and its default
"""

import argparse
import sys

from sidecar import config
from sidecar.cli.parser import add_config
from sidecar.config import InvalidConfigError
from sidecar.config.yaml_writer import example, write
from sidecar.model.errors import ConfigError
from sidecar.model.text import columns, plural
from sidecar.settings import Right, Settings, SubscriptionMode


def arguments(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--example", action="store_true", help="print an annotated configuration with every setting")
    choice.add_argument("--show", action="store_true", help="print the settings in effect, without secrets")


def run(args: argparse.Namespace) -> int:
    if args.example:
        sys.stdout.write(example())
        return 0
    try:
        source, settings = config.find_and_load(args.config, options=args.options)
    except InvalidConfigError as error:
        # Without a prefix, as compilers do it, so that editors can jump to the line.
        for line in error.lines:
            print(line, file=sys.stderr)
        raise ConfigError(plural(len(error.lines), "mistake")) from None
    sys.stdout.write(write(settings) if args.show else _summary(source, settings))
    return 0


def _summary(source: str, settings: Settings) -> str:
    listen = [f"unix:{settings.listen.socket}" if settings.listen.socket else "", settings.listen.tcp]
    rows = [("listen", ", ".join(filter(None, listen))), ("http", settings.http.address or "none")]
    for name, client in settings.clients.items():
        rights = [f"{right} {', '.join(names)}" for right in Right if (names := getattr(client, right))]
        rows.append(("client", f"{name}: {'; '.join(rights)}"))
    rows += [("broker", f"{name}, type {broker.type}") for name, broker in settings.brokers.items()]
    for name, s in settings.subscriptions.items():
        how = f"order {s.order}" if s.mode is SubscriptionMode.LEASES else "by ranges"
        rows.append(("subscription", f"{name}: {', '.join(s.topics)} on {s.broker}, group {s.group_name}, {how}"))
    if not settings.subscriptions:
        rows.append(("subscription", "none: apps can only publish"))
    return "\n".join([f"{source}: ok", *(f"  {line}" for line in columns(rows))]) + "\n"
