"""HiPPO-LegS, the start of S4 (arXiv 2111.00396), and the diagonal form of it, S4D-LegS (arXiv 2206.11893).

The LegS system dx/dt = A x + B u keeps in x the coefficients of all the past in Legendre polynomials:

    A_nk = -sqrt(2n+1) sqrt(2k+1) (n > k), -(n + 1) (n = k), 0 (n < k);   B_n = sqrt(2n+1),   n, k = 0 ... S - 1.

A is a normal matrix less one of rank one, A = N - p p^T, p_n = sqrt(n + 1/2), and N + I/2 is skew-symmetric. So N has
eigenvalues -1/2 +- i omega and orthonormal eigenvectors. S4 trains both parts. S4D keeps N alone, with half of B: as S
grows, its answers to an impulse approach those of (A, B) (arXiv 2206.11893, Theorem 3).

Letters: S states of a channel, in S / 2 conjugate pairs.
"""

from __future__ import annotations

import numpy as np
import torch

from memsweep.models.spectrum import one_thread

RATE = 0.5
"""-Re of every eigenvalue of the normal part."""


def normal_part(states: int) -> np.ndarray:
    """N = A + p p^T, ``[S, S]``."""
    root = np.sqrt(2.0 * np.arange(states) + 1.0)
    below = np.tril(np.outer(root, root), -1)
    return (below.T - below - np.eye(states)) / 2.0


def modes(states: int) -> tuple[np.ndarray, np.ndarray]:
    """Frequencies omega > 0, ascending, and sizes |v^* B| of the input of their modes: ``[S / 2]`` each.

    v has length 1. Its phase is free, and with it that of v^* B.

    Args:
        states: S, even.
    """
    turning = torch.from_numpy(normal_part(states) + RATE * np.eye(states))
    with one_thread():
        # -i times a skew-symmetric matrix is Hermitian: its eigenvalues are real, its eigenvectors orthonormal
        omega, vectors = torch.linalg.eigh(-1j * turning)
    # ascending and in pairs +- omega: the second half are the positive ones
    half = vectors[:, states // 2 :]
    drive = torch.sqrt(2.0 * torch.arange(states, dtype=torch.float64) + 1.0)
    return omega[states // 2 :].numpy(), (half.mH @ drive.to(half.dtype)).abs().numpy()
