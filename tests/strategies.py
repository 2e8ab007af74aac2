"""What hypothesis draws: losses, weights, small problems."""

import numpy as np
from hypothesis import strategies as st

from optimargin.loss import hinge, odm, squared_hinge

positive = st.floats(1e-3, 1e3)

losses = st.one_of(
    st.builds(
        odm,
        positive,
        st.just(0.0) | st.floats(1e-3, 5),
        st.floats(0, 0.95),
        st.integers(1, 1000).map(float),
    ),
    st.builds(squared_hinge, positive),
    st.builds(hinge, positive),
)
margins = st.floats(-50, 50)


@st.composite
def datasets(draw, most=40):
    """Rows with labels of both kinds, from a seed, so that failures shrink to a number."""
    seed = draw(st.integers(0, 10_000))
    n, d = draw(st.integers(2, most)), draw(st.integers(1, 6))
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = np.where(X @ rng.normal(size=d) + rng.normal(size=n) > 0, 1.0, -1.0)
    y[0], y[1] = 1.0, -1.0
    return X, y
