"""Accuracies as the papers print them, by the names that the sets have here: never measured."""

from __future__ import annotations

from typing import NamedTuple


class Copy(NamedTuple):
    """The paper's own copy of a set: what it is called there, and its shape."""

    name: str
    rows: int
    features: int


class Printed(NamedTuple):
    """Mean accuracies of SVM, LDA, ODM^L and ODM (nan: not available).

    ``marks`` are the paired t-tests of the last three against the SVM: "+" significantly better,
    "-" worse, "=" neither.
    """

    means: tuple[float, float, float, float]
    marks: str


METHODS = ("SVM", "LDA", "ODM^L", "ODM")
_NAN = float("nan")

# odm.txt, table 1.  Several copies differ from ours in missing rows or in the coding of words:
# "austra" and not "australian" has the columns of our australian.
COPIES = {
    "colon-cancer": Copy("colon-cancer", 62, 2000),
    "balloons": Copy("balloons", 76, 4),
    "promoters": Copy("promoters", 106, 57),
    "echocardiogram": Copy("echocardiogram", 62, 8),
    "planning": Copy("planning", 182, 12),
    "sonar": Copy("sonar", 208, 60),
    "heart": Copy("heart-statlog", 270, 13),
    "breast-cancer": Copy("breast", 277, 9),
    "heart-h": Copy("heart-h", 261, 10),
    "haberman": Copy("haberman", 306, 14),
    "bupa": Copy("liverDisorders", 345, 6),
    "colic": Copy("colic", 188, 13),
    "house-votes": Copy("house-votes", 435, 16),
    "clean1": Copy("clean1", 476, 166),
    "cylinder-bands": Copy("cylinder-bands", 277, 39),
    "wdbc": Copy("wdbc", 569, 14),
    "australian": Copy("austra", 690, 15),
    "credit-a": Copy("credit-a", 653, 15),
    "diabetes": Copy("diabetes", 768, 8),
    "fourclass": Copy("fourclass", 862, 2),
    "credit-g": Copy("credit-g", 1000, 20),
    "german.numer": Copy("german", 1000, 59),
    "a9a": Copy("adult-a", 32_561, 123),
    "w8a": Copy("w8a", 49_749, 300),
    "cod-rna": Copy("cod-rna", 59_535, 8),
    "ijcnn1": Copy("ijcnn1", 141_691, 22),
    "farm-ads": Copy("farm-ads", 4143, 54_877),
    "rcv1_cocoa_subset": Copy("rcv1", 697_641, 47_236),
}

# odm.txt, table 2
LINEAR = {
    "colon-cancer": Printed((0.808, 0.640, 0.806, 0.823), "-=+"),
    "balloons": Printed((0.703, 0.719, 0.694, 0.720), "==+"),
    "promoters": Printed((0.723, 0.595, 0.721, 0.736), "-=="),
    "echocardiogram": Printed((0.663, 0.705, 0.704, 0.705), "+++"),
    "planning": Printed((0.683, 0.463, 0.706, 0.706), "-++"),
    "sonar": Printed((0.725, 0.613, 0.736, 0.741), "-=+"),
    "heart": Printed((0.826, 0.792, 0.821, 0.836), "-=+"),
    "breast-cancer": Printed((0.717, 0.703, 0.725, 0.732), "-++"),
    "heart-h": Printed((0.807, 0.800, 0.803, 0.812), "==+"),
    "haberman": Printed((0.734, 0.568, 0.738, 0.734), "-=="),
    "bupa": Printed((0.675, 0.515, 0.681, 0.672), "-=="),
    "colic": Printed((0.814, 0.766, 0.832, 0.839), "-++"),
    "house-votes": Printed((0.935, 0.838, 0.942, 0.942), "-++"),
    "clean1": Printed((0.803, 0.539, 0.814, 0.825), "-++"),
    "cylinder-bands": Printed((0.684, 0.634, 0.708, 0.708), "-++"),
    "wdbc": Printed((0.963, 0.887, 0.968, 0.969), "-++"),
    "australian": Printed((0.857, 0.667, 0.859, 0.862), "-=+"),
    "credit-a": Printed((0.861, 0.783, 0.864, 0.862), "-+="),
    "diabetes": Printed((0.671, 0.701, 0.670, 0.671), "+=="),
    "fourclass": Printed((0.724, 0.723, 0.723, 0.723), "==="),
    "credit-g": Printed((0.726, 0.678, 0.745, 0.747), "-++"),
    "german.numer": Printed((0.711, 0.673, 0.738, 0.743), "-++"),
}

# odm.txt, table 3
RBF = {
    "colon-cancer": Printed((0.710, 0.619, 0.725, 0.744), "-=+"),
    "balloons": Printed((0.699, 0.702, 0.739, 0.746), "=++"),
    "promoters": Printed((0.684, 0.623, 0.715, 0.742), "-++"),
    "echocardiogram": Printed((0.703, 0.740, 0.717, 0.731), "+=+"),
    "planning": Printed((0.708, 0.540, 0.707, 0.710), "-=="),
    "sonar": Printed((0.842, 0.526, 0.846, 0.857), "-=+"),
    "heart": Printed((0.815, 0.793, 0.829, 0.834), "-++"),
    "breast-cancer": Printed((0.729, 0.706, 0.753, 0.755), "-++"),
    "heart-h": Printed((0.801, 0.804, 0.801, 0.811), "==+"),
    "haberman": Printed((0.727, 0.528, 0.731, 0.742), "-=+"),
    "bupa": Printed((0.719, 0.563, 0.712, 0.721), "-=="),
    "colic": Printed((0.822, 0.826, 0.841, 0.841), "=++"),
    "house-votes": Printed((0.945, 0.854, 0.949, 0.950), "-++"),
    "clean1": Printed((0.890, 0.671, 0.891, 0.889), "-=="),
    "cylinder-bands": Printed((0.738, 0.632, 0.736, 0.753), "-=+"),
    "wdbc": Printed((0.951, 0.702, 0.961, 0.974), "-++"),
    "australian": Printed((0.853, 0.583, 0.857, 0.862), "-++"),
    "credit-a": Printed((0.858, 0.797, 0.861, 0.864), "-=+"),
    "diabetes": Printed((0.773, 0.686, 0.771, 0.777), "-=+"),
    "fourclass": Printed((0.998, 0.717, 0.998, 1.000), "-=+"),
    "credit-g": Printed((0.751, 0.625, 0.750, 0.757), "-=+"),
    "german.numer": Printed((0.731, 0.599, 0.743, 0.750), "-++"),
}

# odm.txt, table 4
LARGE = {
    "a9a": Printed((0.845, 0.719, 0.846, 0.846), "-++"),
    "w8a": Printed((0.983, 0.510, 0.983, 0.982), "-=="),
    "cod-rna": Printed((0.899, 0.503, 0.899, 0.899), "-=="),
    "ijcnn1": Printed((0.921, _NAN, 0.921, 0.919), "==="),
    "farm-ads": Printed((0.880, _NAN, 0.890, 0.892), "=++"),
    "rcv1_cocoa_subset": Printed((0.969, _NAN, 0.977, 0.977), "=++"),
}
