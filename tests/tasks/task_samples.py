"""What several files of tests of tasks use."""

import numpy as np
import scipy.sparse as sp
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

FIELDS = ("X", "y", "offsets", "labels", "side_info", "side_names", "feature_names")


def assert_same(a, b, fields=FIELDS):
    for name in fields:
        left, right = getattr(a, name), getattr(b, name)
        assert (left is None) == (right is None), name
        if left is not None:
            dense = [v.toarray() if sp.issparse(v) else np.asarray(v) for v in (left, right)]
            assert_array_equal(*dense, err_msg=name)


ragged = st.lists(st.integers(0, 4), min_size=1, max_size=40)
