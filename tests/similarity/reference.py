"""Plain independent implementations, in numpy and scipy, by QR and SVD of the rows."""

from __future__ import annotations

import numpy as np
from scipy.spatial.distance import pdist, squareform
from scipy.stats import pearsonr, spearmanr


def centre(x):
    return x - x.mean(axis=0)


def basis(x, keep=1.0):
    """An orthonormal basis of the centred columns, of the fewest directions that reach `keep` of the variance."""
    u, s, _ = np.linalg.svd(centre(x), full_matrices=False)
    rank = int((s > 1e-7 * s[0]).sum())
    if keep < 1:
        share = np.cumsum(s**2) / np.sum(s**2)
        rank = min(rank, int(np.argmax(share >= keep - 1e-12)) + 1)
    return u[:, :rank]


def cka(x, y):
    k, l = (centre(centre(m @ m.T).T) for m in (x, y))  # noqa: E741
    return np.sum(k * l) / np.sqrt(np.sum(k * k) * np.sum(l * l))


def correlations(x, y, keep=1.0):
    return np.linalg.svd(basis(x, keep).T @ basis(y, keep), compute_uv=False)


def cca(x, y):
    return correlations(x, y).mean()


def cca_squared(x, y):
    return (correlations(x, y) ** 2).mean()


def svcca(x, y, keep=0.99):
    return correlations(x, y, keep).mean()


def pwcca(x, y, keep=0.99, weights="x"):
    a, b = basis(x, keep), basis(y, keep)
    u, rho, vt = np.linalg.svd(a.T @ b, full_matrices=False)
    h, columns = (a @ u, centre(x)) if weights == "x" else (b @ vt.T, centre(y))
    alpha = np.abs(h.T @ columns).sum(axis=1)
    return (alpha * rho).sum() / alpha.sum()


def neuron(x, y, top_k=None):
    best = []
    for a in x.T:
        if a.std() > 0:
            best.append(max(abs(pearsonr(a, b)[0]) for b in y.T if b.std() > 0))
    return np.mean(sorted(best)[-(top_k or len(best)) :])


def mixed(x, y):
    design = np.column_stack([y, np.ones(len(y))])
    found = []
    for a in x.T:
        if a.std() > 0:
            fitted = design @ np.linalg.lstsq(design, a, rcond=None)[0]
            found.append(np.linalg.norm(fitted - a.mean()) / np.linalg.norm(a - a.mean()))
    return np.mean(found)


def linear_regression(x, y):
    design = np.column_stack([x, np.ones(len(x))])
    residual = y - design @ np.linalg.lstsq(design, y, rcond=None)[0]
    return 1 - np.sum(residual**2) / np.sum(centre(y) ** 2)


def procrustes(x, y):
    a, b = centre(x), centre(y)
    return np.linalg.norm(a.T @ b, "nuc") / np.linalg.norm(a) / np.linalg.norm(b)


def hsic(k, l):  # noqa: E741
    """The U-statistic of Song et al. 2012, term by term."""
    n = len(k)
    k, l = (m * (1 - np.eye(n)) for m in (k, l))  # noqa: E741
    ones = np.ones(n)
    return (
        np.trace(k @ l) + ones @ k @ ones * (ones @ l @ ones) / (n - 1) / (n - 2) - 2 / (n - 2) * (ones @ k @ l @ ones)
    ) / (n * (n - 3))


def cka_debiased(x, y):
    k, l = x @ x.T, y @ y.T  # noqa: E741
    return hsic(k, l) / np.sqrt(hsic(k, k) * hsic(l, l))


def cka_minibatch(x, y, batch=250):
    sums = np.zeros(3)
    for start in range(0, len(x), batch):
        a, b = x[start : start + batch], y[start : start + batch]
        if len(a) >= 4:
            k, l = a @ a.T, b @ b.T  # noqa: E741
            sums += [hsic(k, l), hsic(k, k), hsic(l, l)]
    return sums[0] / np.sqrt(sums[1] * sums[2])


def cka_rbf(x, y, bandwidth=1.0):
    def gram(m):
        d = pdist(m)
        return np.exp(-(squareform(d) ** 2) / 2 / (bandwidth * np.median(d)) ** 2)

    n = len(x)
    h = np.eye(n) - 1 / n
    k, l = (h @ gram(m) @ h for m in (x, y))  # noqa: E741
    return np.trace(k @ l) / np.sqrt(np.trace(k @ k) * np.trace(l @ l))


def rsa(x, y, distance="correlation", correlation="spearman"):
    by = {"spearman": spearmanr, "pearson": pearsonr}[correlation]
    return by(pdist(x, distance), pdist(y, distance))[0]


def neighbours(x, k):
    d = squareform(pdist(x, "cosine"))
    np.fill_diagonal(d, np.inf)
    return [set(np.argsort(row)[:k]) for row in d]


def mutual_knn(x, y, k=10):
    return np.mean([len(a & b) / k for a, b in zip(neighbours(x, k), neighbours(y, k), strict=True)])


def jaccard_knn(x, y, k=10):
    return np.mean([len(a & b) / len(a | b) for a, b in zip(neighbours(x, k), neighbours(y, k), strict=True)])


def cknna(x, y, k=10):
    a, b = centre(x), centre(y)
    near = neighbours(x, k), neighbours(y, k)

    def align(p, q, one, two):
        return sum((p[i] @ p[j]) * (q[i] @ q[j]) for i in range(len(x)) for j in one[i] & two[i])

    return align(a, b, *near) / np.sqrt(align(a, a, near[0], near[0]) * align(b, b, near[1], near[1]))


def distance_correlation(x, y):
    a, b = (squareform(pdist(m)) for m in (x, y))
    a, b = (m - m.mean(0) - m.mean(1)[:, None] + m.mean() for m in (a, b))
    return np.sqrt((a * b).mean() / np.sqrt((a * a).mean() * (b * b).mean()))


def cosine(x, y):
    return np.mean([a @ b / np.sqrt((a @ a) * (b @ b)) for a, b in zip(x, y, strict=True)])


def angular(x, y):
    """By Kahan's formula, which keeps its digits for angles of any size."""
    found = []
    for a, b in zip(x, y, strict=True):
        u, v = a * np.linalg.norm(b), b * np.linalg.norm(a)
        found.append(2 * np.arctan2(np.linalg.norm(u - v), np.linalg.norm(u + v)))
    return np.mean(found) / np.pi
