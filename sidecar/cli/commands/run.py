"""
Run the sidecar until SIGTERM or Ctrl-C, then drain and exit.

  offramp run -c offramp.yaml
  offramp run -c offramp.yaml --set log.level=debug
  OFFRAMP_SUBSCRIPTIONS__ORDERS__TOPICS=orders offramp run
"""

import argparse
import faulthandler

from sidecar import config
from sidecar.cli.parser import add_config
from sidecar.server import process, sidecar


def arguments(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    parser.add_argument(
        "--gate-readiness",
        action="store_true",
        help="fail /readyz while a broker is unreachable: for pods that only consume (http.gate_readiness)",
    )


def run(args: argparse.Namespace) -> int:
    if args.gate_readiness:
        args.options.append("http.gate_readiness=true")
    _, settings = config.find_and_load(args.config, options=args.options)
    # If a broker's library crashes the process, the log shows where.
    faulthandler.enable()
    process.exit_now(sidecar.run(settings))
