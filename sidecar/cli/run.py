"""
Run the sidecar until it is told to stop (SIGTERM or Ctrl-C), then drain and leave.

  offramp run -c offramp.yaml
  offramp run -c offramp.yaml --set log.level=debug
  OFFRAMP_SUBSCRIPTIONS__ORDERS__TOPICS=orders offramp run
"""

import argparse
import faulthandler

from sidecar.cli.configured import configured
from sidecar.cli.parser import add_config
from sidecar.server import process, sidecar


def arguments(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    parser.add_argument(
        "--gate-readiness",
        action="store_true",
        help="let /readyz fail while a broker is out of reach: for pods that only consume (http.gate_readiness)",
    )


def run(args: argparse.Namespace) -> int:
    if args.gate_readiness:
        args.options.append("http.gate_readiness=true")
    _, settings = configured(args)
    # Should a broker's library crash the process, the log says where.
    faulthandler.enable()
    process.exit_now(sidecar.run(settings))
