"""The kernel classifier that chooses its own settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from optimargin.estimators.kernel import ODMClassifier
from optimargin.estimators.tuned import LAMS, Tuned, kept


class ODMClassifierCV(Tuned, ODMClassifier):  # type: ignore[misc]  # takes no validation rows
    """Optimal margin distribution machine with a kernel, its settings chosen on folds.

    Finds what ``GridSearchCV(ODMClassifier(), {"lam": lams, "mu": mus, "theta": thetas,
    "gamma": gammas})`` finds, and is much quicker: kernel matrices are computed once for each
    gamma and shared by the folds, every machine starts from the best blend of its neighbours'
    answers, and folds run in threads.  Up to 2,500 training rows, the settings that may win
    are trained exactly; the scores of others may be off by a few rows.  After ``fit`` it is a
    fitted `ODMClassifier` with the best setting: the same attributes, the same predictions.

    Parameters
    ----------
    lams : array-like of float or "scale", default=(1, 16, 256, 4096, 65536)
        Values of ``lam``; the more of them, the nearer each start.
    mus : array-like of float, default=(0.5,)
        Values of ``mu``.
    thetas : array-like of float, default=(0.1, 0.6)
        Values of ``theta``.
    gammas : array-like of float, "scale" or "auto", default=("scale",)
        Values of ``gamma``.  "scale" depends on the rows of a fold, and so does its kernel
        matrix; a number is the same for all folds, which then share theirs.
    cv : int, splitter, iterable or "loo_bound", default=None
        Folds, as in scikit-learn; None is 5.  "loo_bound" needs none: every setting is trained
        once, on all rows, and the smallest ``loo_count_`` wins (its mean over the machines of
        several classes, for which ``multi_class`` must be "ovr" or "ovo").
    scoring : str or callable, default=None
        A scorer; None is the accuracy.
    refit : bool, default=True
        Whether to train on all rows with the best setting.  Otherwise there are results, but
        no predictions.
    kernel : {"rbf", "linear", "laplacian", "poly", "sigmoid", "precomputed"} or callable
        As in `ODMClassifier`.
    degree : float, default=3
        Degree of poly.
    coef0 : float, default=0.0
        Constant in poly and sigmoid.
    solver : {"auto", "dcd", "newton", "landmark"}, default="auto"
        "auto" tries coordinate descent from the neighbours' answers, and Newton's method where
        that is slow.  With "landmark" the landmarks of a fold, and its kernel values with them,
        are found once for each gamma.
    n_landmarks : int or "auto", default="auto"
        As in `ODMClassifier`.
    landmarks : {"margin", "greedy", "random", "kmeans"} or array-like, default="margin"
        As in `ODMClassifier`.
    multi_class : {"mcodm", "mcodm-paper", "ovr", "ovo"}, default="mcodm"
        As in `ODMClassifier`.
    fit_intercept : bool, default=False
        Whether to add a constant feature of value 1.
    class_weight : dict or "balanced", optional
        Factors on the losses of each class.
    tol : float, default=1e-3
        Relative duality gap at which to stop, in the search as well as after it.
    max_iter : int, default=1000
        Most rounds of the solver for one machine.
    memory_limit : float or str, optional
        Bytes, or text such as "2GB", for kernel values kept during the search; None means half
        of the memory that is free.  As many folds are prepared at a time as it has room for.
    n_jobs : int, optional
        Threads; None means all cores.
    random_state : int, RandomState or None
        Decides the order of the rows in coordinate descent.  Folds are decided by ``cv``.
    verbose : int, default=0
        Above 0, one live line of progress.

    Attributes
    ----------
    best_params_ : dict
        The chosen ``gamma``, ``lam``, ``mu`` and ``theta``.
    best_score_ : float
        The mean score of the folds for these; with "loo_bound", minus the bound.
    best_index_ : int
        Their place in ``cv_results_``.
    best_estimator_ : ODMClassifier
        The classifier with these, trained on all rows.
    cv_results_ : dict
        As in GridSearchCV.
    n_splits_ : int
        Number of folds; 0 with "loo_bound".

    See Also
    --------
    ODMClassifier : One setting; its fitted attributes are here too, after ``refit``.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from optimargin import ODMClassifierCV
    >>> X, y = load_iris(return_X_y=True)
    >>> model = ODMClassifierCV(lams=[1, 16, 256], thetas=[0.1], random_state=0).fit(X, y)
    >>> sorted(model.best_params_)
    ['gamma', 'lam', 'mu', 'theta']
    >>> model.best_score_ > 0.95
    True
    """

    _plain = ODMClassifier
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **kept(ODMClassifier),
        **Tuned._constraints,
        "gammas": ["array-like"],
    }

    def __init__(
        self,
        *,
        lams: Sequence[float | str] = LAMS,
        mus: Sequence[float] = (0.5,),
        thetas: Sequence[float] = (0.1, 0.6),
        gammas: Sequence[float | str] = ("scale",),
        cv: Any = None,
        scoring: str | Callable[..., float] | None = None,
        refit: bool = True,
        kernel: str | Callable[[Any, Any], Any] = "rbf",
        degree: float = 3,
        coef0: float = 0.0,
        solver: str = "auto",
        n_landmarks: int | str = "auto",
        landmarks: Any = "margin",
        multi_class: str = "mcodm",
        fit_intercept: bool = False,
        class_weight: Any = None,
        tol: float = 1e-3,
        max_iter: int = 1000,
        memory_limit: float | str | None = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.lams = lams
        self.mus = mus
        self.thetas = thetas
        self.gammas = gammas
        self.cv = cv
        self.scoring = scoring
        self.refit = refit
        self.kernel = kernel
        self.degree = degree
        self.coef0 = coef0
        self.solver = solver
        self.n_landmarks = n_landmarks
        self.landmarks = landmarks
        self.multi_class = multi_class
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.tol = tol
        self.max_iter = max_iter
        self.memory_limit = memory_limit
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
