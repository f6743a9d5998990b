"""The measures' formulas in LaTeX, for pages; X and Y are centred unless `raw` is said."""

from __future__ import annotations

_CKA = r"\frac{\lVert X^\top Y \rVert_F^2}{\lVert X^\top X \rVert_F \, \lVert Y^\top Y \rVert_F}"
_COSINE = r"\frac{\langle x_i, y_i \rangle}{\lVert x_i \rVert \, \lVert y_i \rVert}"
FORMULAS = {
    "cka": _CKA,
    "procrustes": r"\frac{\lVert X^\top Y \rVert_*}{\lVert X \rVert_F \, \lVert Y \rVert_F}",
    "cca": r"\frac{1}{m} \sum_{i=1}^{m} \rho_i",
    "cca_squared": r"\frac{1}{m} \sum_{i=1}^{m} \rho_i^2",
    "pwcca": r"\frac{\sum_i a_i \rho_i}{\sum_i a_i}",
    "linear_regression": r"\frac{\lVert Q_X^\top Y \rVert_F^2}{\lVert Y \rVert_F^2}",
    "distance_correlation": r"\sqrt{\frac{\sum_{ij} A_{ij} B_{ij}}{\sqrt{\sum_{ij} A_{ij}^2 \sum_{ij} B_{ij}^2}}}",
    "mutual_knn": r"\frac{1}{n} \sum_i \frac{|N_X(i) \cap N_Y(i)|}{k}",
    "jaccard_knn": r"\frac{1}{n} \sum_i \frac{|N_X(i) \cap N_Y(i)|}{|N_X(i) \cup N_Y(i)|}",
    "cosine": rf"\frac{{1}}{{n}} \sum_i {_COSINE}",
    "angular": rf"\frac{{1}}{{\pi n}} \sum_i \arccos {_COSINE}",
}
CALIBRATED = r"\max\left(0, \frac{s - \tau}{1 - \tau}\right)"
CALIBRATED_DISTANCE = r"\max\left(0, \frac{\tau - s}{\tau}\right)"
