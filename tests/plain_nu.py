"""nu as the paper prints it, and rows of a few classes to try it on."""

import numpy as np


def plain(x, labels, weighting="class"):
    """Equation 3 as it stands."""
    classes = np.unique(labels)
    groups = [x[labels == c] for c in classes]
    means = np.stack([g.mean(axis=0) for g in groups])
    if weighting == "class":
        within = np.mean([np.cov(g.T, bias=True) for g in groups], axis=0)
        centre = means.mean(axis=0)
    else:
        within = sum(len(g) * np.cov(g.T, bias=True) for g in groups) / len(x)
        centre = x.mean(axis=0)
    between = (means - centre).T @ (means - centre) / len(classes)
    return np.trace(within @ np.linalg.pinv(between, rcond=1e-10, hermitian=True)) / len(classes)


def data(n, d, sizes, seed=0):
    generator = np.random.default_rng(seed)
    labels = generator.permutation(np.repeat(np.arange(len(sizes)), [int(n * s) for s in sizes]))
    centres = generator.normal(size=(len(sizes), d))
    return centres[labels] + generator.normal(size=(len(labels), d)) * np.linspace(0.5, 3, d) + 2, labels
