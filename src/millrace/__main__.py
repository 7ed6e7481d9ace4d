"""The command `millrace`, also as `python -m millrace`.

Here is only what has to be there before anything is imported and after everything has ended: Ctrl-C is no traceback
then either.
"""

import signal
import sys


def main() -> int:
    try:
        from millrace.cli import main as run

        code = run()
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # libraries still tidy up, and Python would say where
    return code


if __name__ == "__main__":
    sys.exit(main())
