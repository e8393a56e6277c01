"""`python -m hostflag_native`: the self-test and the benchmark; and the peers that these start."""

import argparse
import os
import sys
from typing import Final, NoReturn

WRONG_USAGE: Final = 64
"""Exit code of a command line that cannot be understood (EX_USAGE of sysexits.h): 2 would say "untested"."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(WRONG_USAGE, f"{self.prog}: {message}\n")


def main(arguments: list[str]) -> int:
    """Runs one subcommand; a wrong command line ends with WRONG_USAGE and its usage."""
    if arguments[:1] == ["peer"]:
        return _peer(arguments[1:])
    if arguments[:1] == ["pong"]:
        return _pong(arguments[1:])
    parser = _Parser(prog="python -m hostflag_native", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    selftest = commands.add_parser(
        "selftest", help="does the hand-off work here: exit 0 pass, 1 fail, 2 untested, 3 stuck"
    )
    bench = commands.add_parser("bench", help="how fast the hand-off is between two CPUs, beside other ways")
    if arguments[:1] == ["bench"]:
        return _bench(parser, bench, arguments)
    return _selftest(parser, selftest, arguments)


# Peers and each subcommand start without what only the others need.


def _selftest(parser: argparse.ArgumentParser, selftest: argparse.ArgumentParser, arguments: list[str]) -> NoReturn:
    from hostflag_native.selftest import program  # noqa: PLC0415

    program.add_arguments(selftest)
    program.SelfTestProgram(program.request_of(parser.parse_args(arguments))).run()


def _bench(parser: argparse.ArgumentParser, bench: argparse.ArgumentParser, arguments: list[str]) -> int:
    from hostflag_native.bench import program  # noqa: PLC0415

    program.add_arguments(bench)
    return program.run(program.request_of(parser.parse_args(arguments)))


def _peer(arguments: list[str]) -> int:
    from hostflag_native.parent_death import end_with_parent  # noqa: PLC0415
    from hostflag_native.selftest.peer import PeerTask, serve_as_peer  # noqa: PLC0415
    from hostflag_native.shared_page import SharedPage  # noqa: PLC0415

    parent_id, descriptor, text = arguments
    end_with_parent(int(parent_id))
    return serve_as_peer(PeerTask.from_json(text), SharedPage(int(descriptor)))


def _pong(arguments: list[str]) -> int:
    from hostflag_native.exchange import Exchange  # noqa: PLC0415
    from hostflag_native.library import load_hostflag  # noqa: PLC0415
    from hostflag_native.parent_death import end_with_parent  # noqa: PLC0415
    from hostflag_native.shared_page import SharedPage  # noqa: PLC0415

    parent_id, descriptor, cpu, text = arguments
    end_with_parent(int(parent_id))
    exchange = Exchange.from_json(text)
    page = SharedPage(int(descriptor))
    library, _ = load_hostflag(exchange.lib_path)
    os.sched_setaffinity(0, {int(cpu)})
    exchange.pong(library, page.address)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
