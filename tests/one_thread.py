"""Imported before any library that computes: each process of the tests has one thread for that.

Otherwise each has one for each core, and with a process of the tests for each core too, threads mostly wait for each
other, in loops that take the time of a core: tests of attacks took three times as long. A variable that is set stays.
"""

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
