"""H with a block for each feature, against the same H in other forms and as the paper writes it."""

import numpy as np
import pytest

import reference as ref
from tailored.representation.blocks import BlockDiagonal
from tailored.representation.dense import Dense
from tailored.representation.factored import Factored


def random_blocks(seed, d=5, k=7, features=(0, 2, 5)):
    """Random positive semidefinite blocks, one of them singular, on features with gaps between them."""
    rng = np.random.default_rng(seed)
    roots = rng.normal(size=(len(features), d, d))
    roots[1, :, 2:] = 0.0
    C = rng.normal(size=(d, d))
    blocks = np.einsum("kip,kjp->kij", roots, roots)
    return BlockDiagonal(blocks, np.array(features), C @ C.T, k), rng


OTHERS = {
    "dense": lambda made: Dense(ref.H_from_tensor(made.tensor()), made.C),
    "factored": lambda made: Factored.from_tensor(made.tensor(), made.C),
}


@pytest.mark.parametrize("features", [(0, 2, 5), (5, 0, 2), (0, 1, 2)], ids=str)
@pytest.mark.parametrize("other", OTHERS)
def test_blocks_are_the_same_function_as_their_H(other, features):
    made, rng = random_blocks(0, features=features)
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
    found = np.sort(made.spectrum())[::-1]
    np.testing.assert_allclose(found, np.sort(whole.spectrum())[::-1], rtol=1e-10, atol=1e-10)


def test_blocks_of_H():
    """H as the paper writes it: W_h at the entries of feature h, zeros elsewhere."""
    made, rng = random_blocks(1)
    H = np.zeros((5, 7, 5, 7))
    for feature, block in zip((0, 2, 5), made.blocks, strict=True):
        H[:, feature, :, feature] = block
    np.testing.assert_allclose(made.dense_H(), H.reshape(35, 35), atol=1e-12)
    phi = rng.normal(size=7)
    kronecker = np.kron(np.eye(5), phi[None]) @ H.reshape(35, 35) @ np.kron(np.eye(5), phi[:, None])
    np.testing.assert_allclose(made(phi), kronecker + made.C, atol=1e-12)
    # one direction for each dimension of a block: the singular one has two of five
    assert made.tensor().shape == (5 + 2 + 5, 5, 7)
    silent = phi.copy()
    silent[[1, 3, 4, 6]] = rng.normal(size=4)
    np.testing.assert_array_equal(made(silent), made(phi))


def test_blocks_are_copied_and_rebuilt():
    made, rng = random_blocks(2)
    phi = rng.normal(size=7)
    before = made(phi)
    copied = made.copy()
    copied.blocks[:] = 0.0
    copied.C[:] = 0.0
    np.testing.assert_array_equal(made(phi), before)
    again = BlockDiagonal(**made.state())
    np.testing.assert_array_equal(again(phi), before)
    np.testing.assert_array_equal(again.features, made.features)
