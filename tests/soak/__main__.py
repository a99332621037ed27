"""The soak's command line; see ``--help``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from random import Random, SystemRandom

from .soaking import Soak

DESCRIPTION = """\
Play mixed ext_proc traffic to a daemon for long: full duplex, lean duplex, lean buffered and
headers only, small and large bodies, streamed responses, and whatever can go wrong on the way:
resets at any point, half messages, lost connections, broken JSON, bodies that are too large,
nonsense, clients that do not read. Meanwhile endpoints come and go, model servers fail and
recover, and the configuration is reloaded, also with broken files.

Every answer is judged. At the end there must be no wrong answer, no more memory than after the
first quarter (+5 %; of processes that read large bodies: 80 MB each), no stream and nothing in
flight, no failed plugin and no error in the log.
Exit status: 0 when all is well, or else 1.
"""


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        "python -m tests.soak",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--seconds", metavar="S", type=float, default=600.0, help="how long (600)")
    made.add_argument("--streams", metavar="N", type=int, default=5000, help="open at once (5000)")
    made.add_argument("--seed", metavar="N", type=int, help="what is played in which order")
    made.add_argument(
        "--keep-log", metavar="FILE", default="", help="write the daemon's log there as well"
    )
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    seed = SystemRandom().randrange(2**32) if options.seed is None else options.seed
    print(f"seed {seed}, {options.streams:,} streams, {options.seconds:.0f} s", file=sys.stderr)
    soak = Soak(options.seconds, options.streams, Random(seed), options.keep_log)
    findings = soak.run()
    for finding in findings:
        print(finding)
    return 0 if all(finding.well for finding in findings) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
