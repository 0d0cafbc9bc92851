"""Appends the vectors that can be made mechanically to the files beside this folder.

    python3 protocol/vectors/generator/generate.py            # append what is new
    python3 protocol/vectors/generator/generate.py --check    # say what is missing or differs, change nothing

The files are the source of truth: a vector once there is never edited, and those that were written by hand stay.
Needs nothing but Python 3.10 or later.
"""

import sys

import edge
import envelopes
import keys
from vector import Files


def main() -> int:
    files = Files()
    keys.make(files)
    envelopes.make(files)
    edge.make(files)
    problems = files.write(check="--check" in sys.argv[1:])
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
