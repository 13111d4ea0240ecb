"""Type checker for `make shapes`: annotations of diarnorm, shapes included, are checked while the tests run.

NumPy's numbers pass as Python's, whole numbers as floats, and a text buffer as a text file.
"""

from io import TextIOBase
from typing import TextIO

import numpy as np
from beartype import BeartypeConf, FrozenDict, beartype

ALSO = {int: int | np.integer, float: float | int | np.floating | np.integer, TextIO: TextIO | TextIOBase}
check = beartype(conf=BeartypeConf(hint_overrides=FrozenDict(ALSO)))
