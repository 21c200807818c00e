"""H with a block for each feature, against the same H in other forms and as the paper writes it."""

import numpy as np
import pytest

from tailored.representation.blocks import BlockDiagonal
from tailored.representation.dense import Dense
from tailored.representation.factored import Factored


def random_blocks(seed, d=5, k=7):
    """Three random positive semidefinite blocks, one of them singular."""
    rng = np.random.default_rng(seed)
    roots = rng.normal(size=(3, d, d))
    roots[1, :, 2:] = 0.0
    return BlockDiagonal(np.einsum("kip,kjp->kij", roots, roots), k), rng


def tensor(made):
    values, vectors = np.linalg.eigh(made.dense_H())
    return (vectors * np.sqrt(np.maximum(values, 0.0))).T.reshape(-1, made.n_features, made.n_side)


OTHERS = {
    "dense": lambda made: Dense(made.dense_H(), made.C),
    "factored": lambda made: Factored.from_tensor(tensor(made), made.C),
}


@pytest.mark.parametrize("other", OTHERS)
def test_blocks_are_the_same_function_as_their_H(other):
    made, rng = random_blocks(0)
    whole = OTHERS[other](made)
    phis = rng.normal(size=(4, 7))
    np.testing.assert_allclose(made.evaluate(phis), whole.evaluate(phis), rtol=1e-10, atol=1e-10)
    columns = np.array([4, 0, 3])
    for phi in phis:
        np.testing.assert_allclose(made(phi), whole(phi), rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(made(phi, columns), whole(phi, columns), rtol=1e-10, atol=1e-10)
        vector = rng.normal(size=3)
        np.testing.assert_allclose(
            made.multiply(phi, columns, vector),
            whole.multiply(phi, columns, vector),
            rtol=1e-10,
            atol=1e-10,
        )
    halved, expected = made.scale(0.5), whole.scale(0.5)
    assert isinstance(halved, BlockDiagonal)
    np.testing.assert_allclose(halved.evaluate(phis), expected.evaluate(phis), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(made.dense_H(), whole.dense_H(), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(halved.dense_H(), 0.5 * whole.dense_H(), rtol=1e-10, atol=1e-10)


def test_blocks_of_H():
    """H as the paper writes it: W_h at the entries of feature h, zeros elsewhere."""
    made, rng = random_blocks(1)
    H = np.zeros((5, 7, 5, 7))
    for feature, block in enumerate(made.blocks):
        H[:, feature, :, feature] = block
    np.testing.assert_allclose(made.dense_H(), H.reshape(35, 35), atol=1e-12)
    phi = rng.normal(size=7)
    kronecker = np.kron(np.eye(5), phi[None]) @ H.reshape(35, 35) @ np.kron(np.eye(5), phi[:, None])
    np.testing.assert_allclose(made(phi), kronecker + made.C, atol=1e-12)
    silent = phi.copy()
    silent[3:] = rng.normal(size=4)
    np.testing.assert_array_equal(made(silent), made(phi))


def test_blocks_are_copied_and_rebuilt():
    made, rng = random_blocks(2)
    phi = rng.normal(size=7)
    before = made(phi)
    copied = made.copy()
    copied.blocks[:] = 0.0
    np.testing.assert_array_equal(made(phi), before)
    again = BlockDiagonal(**made.state())
    np.testing.assert_array_equal(again(phi), before)
