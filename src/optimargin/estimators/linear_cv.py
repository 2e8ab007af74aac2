"""The linear classifier that chooses its own settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from optimargin.estimators.linear import LinearODMClassifier
from optimargin.estimators.tuned import LAMS, Tuned, kept


class LinearODMClassifierCV(Tuned, LinearODMClassifier):
    """Linear optimal margin distribution machine, its settings chosen on folds.

    Finds what ``GridSearchCV(LinearODMClassifier(), {"lam": lams, "mu": mus, "theta":
    thetas})`` finds: the rows of a fold are prepared once, every machine starts from the
    answer to the nearest setting, and folds run in threads.  After ``fit`` it is a fitted
    `LinearODMClassifier` with the best setting: the same attributes, the same predictions.

    Parameters
    ----------
    lams : array-like of float or "scale", default=(1, 16, 256, 4096, 65536)
        Values of ``lam``.
    mus : array-like of float, default=(0.5,)
        Values of ``mu``.
    thetas : array-like of float, default=(0.1, 0.6)
        Values of ``theta``.
    cv : int, splitter, iterable or "loo_bound", default=None
        Folds, as in scikit-learn; None is 5.  "loo_bound" needs none: every setting is trained
        once, on all rows, and the smallest ``loo_count_`` wins (its mean over the machines of
        several classes, for which ``multi_class`` must be "ovr" or "ovo").
    scoring : str or callable, default=None
        A scorer; None is the accuracy.
    refit : bool, default=True
        Whether to train on all rows with the best setting.  Otherwise there are results, but
        no predictions.
    solver : {"auto", "dcd", "newton", "svrg"}, default="auto"
        As in `LinearODMClassifier`.
    multi_class : {"mcodm", "mcodm-paper", "ovr", "ovo"}, default="mcodm"
        As in `LinearODMClassifier`.
    fit_intercept : bool, default=True
        Whether to add a constant feature.
    class_weight : dict or "balanced", optional
        Factors on the losses of each class.
    tol : float, default=1e-4
        Relative duality gap at which to stop, in the search as well as after it.
    max_iter : int, default=1000
        Most rounds of the solver for one machine.
    memory_limit : float or str, optional
        Bytes, or text such as "2GB", for the rows of folds and for Hessians; None means half
        of the memory that is free.
    n_jobs : int, optional
        Threads; None means all cores.
    random_state : int, RandomState or None
        Decides the order of the rows in coordinate descent.  Folds are decided by ``cv``.
    verbose : int, default=0
        Above 0, one live line of progress.

    Attributes
    ----------
    best_params_ : dict
        The chosen ``lam``, ``mu`` and ``theta``.
    best_score_ : float
        The mean score of the folds for these; with "loo_bound", minus the bound.
    best_index_ : int
        Their place in ``cv_results_``.
    best_estimator_ : LinearODMClassifier
        The classifier with these, trained on all rows.
    cv_results_ : dict
        As in GridSearchCV.
    n_splits_ : int
        Number of folds; 0 with "loo_bound".

    See Also
    --------
    LinearODMClassifier : One setting; its fitted attributes are here too, after ``refit``.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from optimargin import LinearODMClassifierCV
    >>> X, y = load_iris(return_X_y=True)
    >>> model = LinearODMClassifierCV(lams=[1, 16, 256], random_state=0).fit(X, y)
    >>> sorted(model.best_params_)
    ['lam', 'mu', 'theta']
    """

    _plain = LinearODMClassifier
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **kept(LinearODMClassifier),
        **Tuned._constraints,
    }

    def __init__(
        self,
        *,
        lams: Sequence[float | str] = LAMS,
        mus: Sequence[float] = (0.5,),
        thetas: Sequence[float] = (0.1, 0.6),
        cv: Any = None,
        scoring: str | Callable[..., float] | None = None,
        refit: bool = True,
        solver: str = "auto",
        multi_class: str = "mcodm",
        fit_intercept: bool = True,
        class_weight: Any = None,
        tol: float = 1e-4,
        max_iter: int = 1000,
        memory_limit: float | str | None = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.lams = lams
        self.mus = mus
        self.thetas = thetas
        self.cv = cv
        self.scoring = scoring
        self.refit = refit
        self.solver = solver
        self.multi_class = multi_class
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.tol = tol
        self.max_iter = max_iter
        self.memory_limit = memory_limit
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
