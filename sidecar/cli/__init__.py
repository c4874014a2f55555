"""The `offramp` command.

commands/     one module for each command
demo/         what `offramp demo` runs; not part of the container image
parser        arguments that several commands share; help and usage errors
connection    calls to a running sidecar; gRPC errors as sentences
cleaned       its messages as a terminal may show them
json_lines    records and messages as lines of JSON
dead_letter_choice  which dead letters are meant
status_text   a status as text: the report of `status`, the screen and the lines of `top`
terminal      colours, and a screen that is drawn in place

A command's module is imported when the command is called, so that each starts fast.
"""

import difflib
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

from sidecar.cli.parser import Parser
from sidecar.model.errors import OfframpError
from sidecar.model.text import clean

OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130

#: what each does; its module in `commands` has its name
COMMANDS = {
    "run": "run the sidecar",
    "demo": "watch a sidecar and its workers survive failures, then check the result",
    "lint": "check a configuration, or print an example",
    "health": "check that the sidecar of this pod is alive, for probes",
    "status": "show what a running sidecar is doing",
    "top": "show the same, live",
    "publish": "publish messages from a file or a pipe",
    "consume": "write records to a pipe and ack what its reader took",
    "dead-letters": "list dead letters, or show one",
    "redrive": "send dead letters back to their group",
    "delete-dead-letters": "delete dead letters",
    "pause": "stop the deliveries of a subscription",
    "resume": "resume the deliveries of a subscription",
    "seek": "move a subscription to another position",
    "delete-group": "delete a group of the local broker",
    "version": "show the versions of Offramp and its libraries",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code: 0 success, 1 failure, 2 wrong usage."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        code = _call(arguments)
        # Flush here: what is still buffered may meet a closed pipe, too.
        print(end="", flush=True)
        return code
    except OfframpError as error:
        for line in str(error).splitlines():
            print(f"offramp: {clean(line)}", file=sys.stderr)
        return FAILED
    except BrokenPipeError:
        # The reader closed the pipe (`| head`). Without this, Python would report it again when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return OK
    except KeyboardInterrupt:
        return INTERRUPTED
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else OK


def _call(arguments: list[str]) -> int:
    name = arguments[0] if arguments else ""
    if name not in COMMANDS:
        _no_command(arguments)
    module = import_module(f"sidecar.cli.commands.{name.replace('-', '_')}")
    parser = Parser(prog=f"offramp {name}", help_text=module.__doc__ or COMMANDS[name])
    module.arguments(parser)
    code: int = module.run(parser.parse_args(arguments[1:]))
    return code


def _no_command(arguments: list[str]) -> NoReturn:
    width = max(map(len, COMMANDS))
    listing = "\n".join(f"  {name:<{width}}  {summary}" for name, summary in COMMANDS.items())
    parser = Parser(
        prog="offramp",
        usage="offramp COMMAND [...]",
        help_text="Delivers messages from a broker to your code, over gRPC, in any language.\n\n"
        f"Commands:\n{listing}\n\n"
        "`offramp COMMAND --help` shows the options of a command. Exit codes: 0 success, 1 failure, 2 wrong usage.",
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
    hint = f'Did you mean "{close[0]}"?' if close else f"The commands are {', '.join(COMMANDS)}."
    parser.error(f'"{arguments[0]}" is not a command. {hint}')
