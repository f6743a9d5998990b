"""The program `layerscope`, `python -m layerscope`, and so `accelerate launch -m layerscope`."""

import os
import sys

# Threads that wait for the others spin. Where another program wants the cores too, that makes everything several times
# slower; so wait for microseconds only, unless told otherwise. It is read once, when torch is imported.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "20000")

_INTERRUPTED = 130  # what a shell expects of a program that Ctrl-C has stopped


def main() -> None:
    """Run the command line; Ctrl-C at any moment, the imports among them, is one sentence."""
    try:
        from layerscope.cli import main as run

        run()
    except (KeyboardInterrupt, SystemExit) as stop:
        if isinstance(stop, SystemExit) and stop.code != _INTERRUPTED:
            raise
        print("Interrupted. What was finished is kept: the same command goes on from there.", file=sys.stderr)
        sys.exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
