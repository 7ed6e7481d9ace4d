"""`python -m millrace` is the command `millrace`."""

import sys

from millrace.cli import main

sys.exit(main())
