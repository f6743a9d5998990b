"""Plain independent implementations, in numpy and scipy, by QR and SVD of the rows."""

from __future__ import annotations

from itertools import permutations

import numpy as np
from scipy.linalg import expm, orthogonal_procrustes
from scipy.sparse.csgraph import laplacian
from scipy.spatial.distance import pdist, squareform
from scipy.stats import pearsonr, spearmanr
from sklearn.neighbors import kneighbors_graph


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


def pearson_table(x, y):
    return np.asarray([[pearsonr(a, b)[0] for b in y.T] for a in x.T])


def hard_correlation_match(x, y):
    """Over every matching, one by one."""
    table = pearson_table(x, y)
    table = table if len(table) <= len(table.T) else table.T
    own = np.arange(len(table))
    return max(table[own, list(order)].mean() for order in permutations(range(table.shape[1]), len(table)))


def soft_correlation_match(x, y):
    table = pearson_table(x, y)
    return (table.max(axis=0).mean() + table.max(axis=1).mean()) / 2


def gulp(x, y, ridge=0.0):
    """The distance of what both sides predict of any target: that of the smoothing matrices of ridge regression."""

    def smoother(m):
        m = centre(m) / np.linalg.norm(centre(m))
        return m @ np.linalg.inv(m.T @ m + ridge * np.eye(m.shape[1])) @ m.T

    return np.linalg.norm(smoother(x) - smoother(y))


def eigenspace_overlap(x, y):
    return np.trace(x @ np.linalg.pinv(x) @ y @ np.linalg.pinv(y)) / max(x.shape[1], y.shape[1])


def padded(x, y):
    width = max(x.shape[1], y.shape[1])
    return [np.pad(m, [(0, 0), (0, width - m.shape[1])]) for m in (x, y)]


def procrustes_angular(x, y):
    a, b = padded(centre(x), centre(y))
    turned = a @ orthogonal_procrustes(a, b)[0]
    return np.arccos(np.sum(turned * b) / np.linalg.norm(a) / np.linalg.norm(b))


def procrustes_size_and_shape(x, y):
    a, b = padded(centre(x), centre(y))
    return np.linalg.norm(a @ orthogonal_procrustes(a, b)[0] - b)


def permutation_procrustes(x, y):
    """Over every order of the columns, one by one."""
    a, b = padded(x, y)
    apart = np.sum((a[:, :, None] - b[:, None, :]) ** 2, axis=0)
    own = np.arange(len(apart))
    return np.sqrt(min(apart[own, list(order)].sum() for order in permutations(range(len(apart)))))


def aligned_cosine(x, y):
    a, b = padded(x, y)
    return cosine(a @ orthogonal_procrustes(a, b)[0], b)


def rsm_norm_difference(x, y, norm="frobenius"):
    difference = squareform(pdist(x)) - squareform(pdist(y))
    return np.linalg.norm(difference, {"frobenius": "fro", "spectral": 2}[norm])


def ranked(x, k):
    d = squareform(pdist(x, "cosine"))
    np.fill_diagonal(d, np.inf)
    return [list(np.argsort(row)[:k]) for row in d]


def rank_similarity(x, y, k=10):
    found = []
    for one, two in zip(ranked(x, k), ranked(y, k), strict=True):
        score, shared = 0.0, set(one) & set(two)
        for neighbour in shared:
            r, s = one.index(neighbour) + 1, two.index(neighbour) + 1
            score += 2 / ((1 + abs(r - s)) * (r + s))
        found.append(score / sum(1 / m for m in range(1, len(shared) + 1)) if shared else 0.0)
    return np.mean(found)


def second_order_cosine(x, y, k=10, distances=False):
    tables = [squareform(pdist(m, "cosine")) if distances else 1 - squareform(pdist(m, "cosine")) for m in (x, y)]
    found = []
    for row, (one, two) in enumerate(zip(neighbours(x, k), neighbours(y, k), strict=True)):
        a, b = (table[row, sorted(one | two)] for table in tables)
        found.append(a @ b / np.linalg.norm(a) / np.linalg.norm(b))
    return np.mean(found)


def concentricity_difference(x, y):
    one, two = (cosine(m, np.tile(m.mean(axis=0), (len(m), 1))) for m in (x, y))
    return abs(one - two)


def magnitude_difference(x, y):
    return abs(np.linalg.norm(x.mean(axis=0)) - np.linalg.norm(y.mean(axis=0)))


def uniformity_difference(x, y, t=2.0):
    one, two = (np.log(np.exp(-t * squareform(pdist(m)) ** 2).mean()) for m in (x, y))
    return abs(one - two)


def imd(x, y, k=5):
    def trace(m, t):
        graph = kneighbors_graph(m, k).toarray()
        return np.trace(expm(-t * laplacian(np.maximum(graph, graph.T), normed=True))) / len(m)

    times = [t for t in np.logspace(-1, 1, 256) if 0.4 < t < 2.5]  # outside of these the weight is small
    return 1e6 * max(np.exp(-2 * (t + 1 / t)) * abs(trace(x, t) - trace(y, t)) for t in times)


def cosine(x, y):
    return np.mean([a @ b / np.sqrt((a @ a) * (b @ b)) for a, b in zip(x, y, strict=True)])


def angular(x, y):
    """By Kahan's formula, which keeps its digits for angles of any size."""
    found = []
    for a, b in zip(x, y, strict=True):
        u, v = a * np.linalg.norm(b), b * np.linalg.norm(a)
        found.append(2 * np.arctan2(np.linalg.norm(u - v), np.linalg.norm(u + v)))
    return np.mean(found) / np.pi
