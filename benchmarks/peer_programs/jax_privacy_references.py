"""Mean squared errors of banded factors that jax-privacy optimises, for plugins/std/tests/test_std_factors.py.

    python3 -m venv jp && jp/bin/pip install jax-privacy && JAX_PLATFORMS=cpu jp/bin/python jax_privacy_references.py
"""

import jax
from jax_privacy.matrix_factorization import banded

jax.config.update("jax_enable_x64", True)

for rounds in (64, 128, 256):
    for bands in (1, 2, 4, 8, 16):
        found = banded.optimize(rounds, bands=bands, max_optimizer_steps=500)
        print(rounds, bands, float(banded.per_query_error(found).mean()), flush=True)
