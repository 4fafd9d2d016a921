"""Errors of banded factors and of BLTs that jax-privacy optimises, for plugins/std/tests/test_std_factors.py.

    python3 -m venv jp && jp/bin/pip install jax-privacy && JAX_PLATFORMS=cpu jp/bin/python jax_privacy_references.py
"""

import jax
from jax_privacy.matrix_factorization import banded, buffered_toeplitz

jax.config.update("jax_enable_x64", True)

for rounds in (64, 128, 256):
    for bands in (1, 2, 4, 8, 16):
        found = banded.optimize(rounds, bands=bands, max_optimizer_steps=500)
        print(rounds, bands, float(banded.per_query_error(found).mean()), flush=True)

# Errors at a price: mean squared error times squared sensitivity.
for rounds, times, separation in ((64, 1, 64), (64, 8, 8), (200, 10, 20), (500, 3, 100), (1000, 1, 1000)):
    loss = buffered_toeplitz.LossFn.build_min_sep(n=rounds, error="mean", min_sep=separation, max_participations=times)
    for buffers in (1, 2, 3):
        pair = buffered_toeplitz.Parameterization.buf_decay_pair()
        found = buffered_toeplitz.optimize_loss(
            loss_fn=loss, num_buffers=buffers, parameterization=pair, max_optimizer_steps=500
        )
        blt = found[0] if isinstance(found, tuple) else found
        print(rounds, buffers, times, separation, float(loss.loss(blt)), flush=True)
