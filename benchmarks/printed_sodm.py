"""What sodm.txt prints in its tables 2 and 3: accuracy, and seconds on a cluster of 80 cores."""

from __future__ import annotations

from typing import NamedTuple

METHODS = ("Ca-ODM", "DiP-ODM", "DC-ODM", "SODM")


class Printed(NamedTuple):
    """Accuracy of ODM (None: not in 48 hours); accuracies and seconds of `METHODS`."""

    odm: float | None
    accuracy: tuple[float, float, float, float]
    seconds: tuple[float, float, float, float]


RBF = {
    "gisette": Printed(0.976, (0.957, 0.970, 0.964, 0.972), (90.22, 68.02, 70.44, 59.89)),
    "svmguide1": Printed(0.970, (0.872, 0.903, 0.943, 0.944), (38.90, 35.25, 50.11, 28.74)),
    "phishing": Printed(0.941, (0.880, 0.901, 0.936, 0.938), (49.60, 52.61, 59.47, 25.22)),
    "a7a": Printed(0.882, (0.824, 0.813, 0.815, 0.838), (68.36, 61.24, 106.51, 32.67)),
    "cod-rna": Printed(None, (0.892, 0.905, 0.931, 0.933), (499.38, 532.68, 400.61, 55.41)),
    "ijcnn1": Printed(None, (0.889, 0.893, 0.915, 0.927), (185.20, 182.71, 226.26, 40.32)),
    "skin_nonskin": Printed(None, (0.806, 0.830, 0.962, 0.956), (338.73, 437.20, 407.46, 283.36)),
    "SUSY": Printed(None, (0.733, 0.744, 0.747, 0.760), (4280.23, 5678.66, 7009.36, 1004.33)),
}
LINEAR = {
    "gisette": Printed(0.972, (0.953, 0.966, 0.968, 0.968), (82.35, 74.36, 66.32, 28.57)),
    "svmguide1": Printed(0.964, (0.863, 0.898, 0.933, 0.931), (35.27, 40.52, 41.85, 18.93)),
    "phishing": Printed(0.937, (0.894, 0.921, 0.926, 0.933), (33.84, 38.60, 29.04, 11.75)),
    "a7a": Printed(0.850, (0.795, 0.831, 0.833, 0.847), (47.59, 59.17, 85.42, 16.41)),
    "cod-rna": Printed(0.938, (0.882, 0.894, 0.890, 0.934), (435.19, 434.77, 331.46, 17.29)),
    "ijcnn1": Printed(0.913, (0.896, 0.903, 0.883, 0.920), (228.43, 208.81, 214.66, 21.15)),
    "skin_nonskin": Printed(0.917, (0.796, 0.903, 0.922, 0.909), (158.12, 256.78, 340.30, 21.15)),
    "SUSY": Printed(0.774, (0.734, 0.738, 0.747, 0.760), (3790.37, 3829.23, 7095.32, 178.92)),
}
