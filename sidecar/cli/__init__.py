"""The `offramp` command. A command's module is loaded when it is called, so that each starts fast.

A module of a command has `arguments(parser)`, which says what it takes, and `run(args)`, which does it and answers
the exit code. Its docstring is its help: a sentence, then examples.
"""

import difflib
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple, NoReturn

from sidecar.cli.parser import Parser
from sidecar.model.errors import OfframpError

OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130


class Command(NamedTuple):
    module: str
    summary: str


COMMANDS = {
    "run": Command("sidecar.cli.run", "run the sidecar"),
    "demo": Command("sidecar.cli.demo", "see it work: a sidecar, workers, failures, and a verdict"),
    "lint": Command("sidecar.cli.lint", "check a configuration, or print an example of one"),
    "health": Command("sidecar.cli.health", "whether the sidecar beside it is alive, for probes"),
    "status": Command("sidecar.cli.status", "what a running sidecar is doing"),
    "top": Command("sidecar.cli.top", "the same, live"),
    "publish": Command("sidecar.cli.publish", "send messages from a file or a pipe"),
    "consume": Command("sidecar.cli.consume", "write records to a pipe and ack what the reader took"),
    "dead-letters": Command("sidecar.cli.dead_letters", "list or show the records that failed for good"),
    "redrive": Command("sidecar.cli.redrive", "send dead letters back to their group"),
    "pause": Command("sidecar.cli.pause", "stop the deliveries of a subscription"),
    "resume": Command("sidecar.cli.resume", "go on with a subscription"),
    "seek": Command("sidecar.cli.seek", "move a subscription to another position"),
    "delete-group": Command("sidecar.cli.delete_group", "forget a group of the local broker"),
    "version": Command("sidecar.cli.version", "the versions of Offramp and what it runs on"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command and answers its exit code: 0 done, 1 failed, 2 called wrongly."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        code = _call(arguments)
        # What is still buffered may meet a closed pipe, too.
        print(end="", flush=True)
        return code
    except OfframpError as error:
        for line in str(error).splitlines():
            print(f"offramp: {line}", file=sys.stderr)
        return FAILED
    except BrokenPipeError:
        # The reader has seen enough (`| head`). Python would complain once more when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return OK
    except KeyboardInterrupt:
        return INTERRUPTED
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else OK


def _call(arguments: list[str]) -> int:
    name = arguments[0] if arguments else ""
    command = COMMANDS.get(name)
    if command is None:
        _no_command(arguments)
    module = import_module(command.module)
    if name == "demo":
        # It has options of its own, and its own help.
        return int(module.main(arguments[1:]))
    parser = Parser(prog=f"offramp {name}", help_text=module.__doc__ or command.summary)
    module.arguments(parser)
    code: int = module.run(parser.parse_args(arguments[1:]))
    return code


def _no_command(arguments: list[str]) -> NoReturn:
    width = max(map(len, COMMANDS))
    listing = "\n".join(f"  {name:<{width}}  {command.summary}" for name, command in COMMANDS.items())
    parser = Parser(
        prog="offramp",
        usage="offramp COMMAND [...]",
        help_text="Gets messages from a broker into your code, over gRPC, in any language.\n\n"
        f"Commands:\n{listing}\n\n"
        "`offramp COMMAND --help` says more. Exit codes: 0 done, 1 failed, 2 called wrongly.",
    )
    parser.add_argument("--version", action="store_true", help="print the version")
    if not arguments:
        parser.print_help()
        parser.exit(USAGE)
    if arguments[0].startswith("-"):
        if parser.parse_args(arguments).version:
            print(import_module("sidecar.model.version").VERSION)
        parser.exit(OK)
    close = difflib.get_close_matches(arguments[0], COMMANDS, n=1)
    hint = f'Did you mean "{close[0]}"?' if close else f"There is {', '.join(COMMANDS)}."
    parser.error(f'"{arguments[0]}" is not a command. {hint}')
