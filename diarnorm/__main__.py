"""`python -m diarnorm` is the `diarnorm` command."""

import sys

from diarnorm.cli import main

sys.exit(main())
