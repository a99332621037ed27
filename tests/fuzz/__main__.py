"""The fuzzer's command line; see ``--help``."""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from random import SystemRandom
from time import monotonic
from typing import Final

from .running import LIMIT, LONGEST, Failure, Fuzzer
from .targets import Target, targets

BATCH: Final = 50  # inputs of one target before it is the next one's turn
APART: Final = 5.0  # seconds between lines of progress
DESCRIPTION: Final = """\
Feed what reads foreign bytes with inputs that resemble real ones and are wrong: the codec of
ext_proc's messages, the parsers of request bodies, and what looks into responses, cut anywhere.

Whatever is read or refused as declared, in bounded time, is well. Anything else is a fault: it is
shown with its traceback, the input is kept in a file, and the exit status is 1.
"""


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        "python -m tests.fuzz",
        description=DESCRIPTION,
        epilog="targets:\n" + "".join(f"  {target.name}\n" for target in targets()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--seconds", metavar="S", type=float, default=60.0, help="how long (60)")
    made.add_argument("--seed", metavar="N", type=int, help="which inputs; a random one if absent")
    made.add_argument("--inputs", metavar="N", type=int, help="per target, and no more")
    made.add_argument(
        "--target", metavar="PATTERN", default="", help="only those whose name it matches"
    )
    made.add_argument("--limit", metavar="S", type=float, default=LIMIT, help="CPU s an input (1)")
    made.add_argument(
        "--longest", metavar="N", type=int, default=LONGEST, help="bytes of an input (100,000)"
    )
    made.add_argument("--replay", metavar="FILE", type=Path, help="try this input and nothing else")
    made.add_argument(
        "--save",
        metavar="DIR",
        type=Path,
        default=Path(tempfile.gettempdir()),
        help="where an input that shows a fault is kept",
    )
    return made


def main(arguments: Sequence[str] | None = None, known: Sequence[Target] | None = None) -> int:
    options = parser().parse_args(arguments)
    wanted = re.compile(options.target)
    chosen = [one for one in known or targets() if wanted.search(one.name)]
    if not chosen:
        print(f"no target's name matches {options.target!r}", file=sys.stderr)
        return 2
    seed = SystemRandom().randrange(2**32) if options.seed is None else options.seed
    fuzzers = [Fuzzer(target, seed, options.longest, options.limit) for target in chosen]
    if options.replay is not None:
        failure = replay(fuzzers, options.replay.read_bytes())
    else:
        print(f"seed {seed}, {len(fuzzers)} targets", file=sys.stderr)
        failure = run(fuzzers, options.seconds, options.inputs)
    if failure is not None:
        show(failure, options.save)
    return 0 if failure is None else 1


def replay(fuzzers: Sequence[Fuzzer], data: bytes) -> Failure | None:
    """The first fault that one input shows."""
    return next((one for fuzzer in fuzzers if (one := fuzzer.attempt(data)) is not None), None)


def run(fuzzers: Sequence[Fuzzer], seconds: float, inputs: int | None) -> Failure | None:
    """Try inputs on all in turn until the time is up, each had its share, or one fails."""
    end, told = monotonic() + seconds, monotonic()
    left = list(fuzzers)
    while left and monotonic() < end:
        for fuzzer in left:
            share = BATCH if inputs is None else min(BATCH, inputs - fuzzer.tried)
            if (failure := fuzzer.run(share)) is not None:
                tell(fuzzers)
                return failure
            if monotonic() - told > APART:
                told = monotonic()
                tell(fuzzers)
        left = [one for one in left if inputs is None or one.tried < inputs]
    tell(fuzzers)
    return None


def tell(fuzzers: Sequence[Fuzzer]) -> None:
    tried = sum(fuzzer.tried for fuzzer in fuzzers)
    kinds = sum(len(fuzzer.kinds) for fuzzer in fuzzers)
    print(f"{tried:,} inputs of {kinds:,} kinds", file=sys.stderr, flush=True)


def show(failure: Failure, folder: Path) -> None:
    """The fault, and how to see it again."""
    file = folder / f"fuzz-{sha256(failure.data).hexdigest()[:12]}.bin"
    file.write_bytes(failure.data)
    print(failure.text)
    print(f"{failure.target}: {failure.data[:200]!r} ({len(failure.data):,} bytes)")
    pattern = f"^{re.escape(failure.target)}$"
    print(f"again: python -m tests.fuzz --target '{pattern}' --replay {file}")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
