"""`python -m cpuplan`: the same as the command `cpuplan`."""

import sys

from .cli.main import main

sys.exit(main())
