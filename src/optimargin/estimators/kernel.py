"""The kernel classifier."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from optimargin.estimators.large import LargeKernelClassifier


class ODMClassifier(LargeKernelClassifier):
    """Optimal margin distribution machine with a kernel.

    Minimises, over functions f = sum_j b_j K(x_j, .) of the kernel's space::

        1/2 |f|^2 + lam / (n (1-theta)^2) sum_i s_i [(1-theta-u_i)_+^2 + mu (u_i-1-theta)_+^2]

    where u_i = y_i f(x_i) is the margin of row i, s_i its weight and n the sum of the
    sample weights.  ``mu=0, theta=0`` is the squared-hinge SVM.

    Parameters
    ----------
    kernel : {"rbf", "linear", "laplacian", "poly", "sigmoid", "precomputed"} or callable
        A callable takes two matrices of rows and returns the matrix of kernel values.
    lam : float or "scale", default="scale"
        Weight of the losses, summed over the data: the inverse of regularisation.
        "scale" is n (1-theta)^2, which gives every row's loss the weight 1, as C=1 does in
        scikit-learn's SVMs; ``lam_`` tells the number.
    mu : float, default=0.5
        Weight of margins above 1 + theta, relative to margins below 1 - theta.
    theta : float, default=0.1
        Half-width of the band around 1 in which a margin costs nothing; in [0, 1).
    gamma : {"scale", "auto"} or float, default="scale"
        Coefficient of rbf, laplacian, poly and sigmoid; "scale" is
        1 / (n_features * X.var()), "auto" is 1 / n_features.
    degree : float, default=3
        Degree of poly.
    coef0 : float, default=0.0
        Constant in poly and sigmoid.
    solver : {"auto", "dcd", "newton", "landmark", "sodm"}, default="auto"
        Dual coordinate descent and Newton's method find the machine above.  "landmark" looks for
        it among expansions over a few landmarks z_j instead of all rows, by Newton's method:
        time and memory grow as the number of rows does.  "auto" is exact while that is
        cheaper; `explain` tells what it would do, ``solver_`` what it did.  "sodm" trains
        machines on parts of the rows and merges them, level by level.
    n_landmarks : int or "auto", default="auto"
        How many landmarks; "auto" doubles their number until held-out rows gain no more.
    landmarks : {"margin", "greedy", "random", "kmeans"} or array-like, default="margin"
        Which rows become landmarks.

        - "margin": those that pull on the machine and that other landmarks explain least.
        - "greedy": the one that others explain least, in turn (pivoted Cholesky factor).
        - "random": any.
        - "kmeans": none; landmarks are the centres of clusters.
        - rows of shape (n_landmarks, n_features): these.
    n_partitions : int, optional
        Parts of the first level of "sodm"; None means the least power of ``fan_in`` for which
        a part has at most 2,500 rows.
    fan_in : int, default=4
        How many parts become one in a merge.
    partition : {"stratified", "random", "kmeans", "kmeans-strata", "blocks"}, default="stratified"
        Which rows make a part.

        - "stratified": equal shares of every class and stratum, a stratum being the rows that
          are nearest to one of ``n_strata`` landmarks in the kernel's space.
        - "random": any rows (with ``survivors=True``: Cascade).
        - "kmeans": clusters, found anew at every level (DC).
        - "kmeans-strata": equal shares of clusters (with ``survivors=True``: DiP).
        - "blocks": rows that follow each other.
    n_strata : int, default=32
        How many strata.
    levels : int, optional
        Levels after which to stop with the average of the parts' machines; None means
        to go on until the gap is at most ``tol``, or one part is left.
    merge : {"auto", "rescaled", "blend", "concatenate", "same"}, default="auto"
        Where a merged part starts from.

        - "rescaled": the average of the machines that meet.
        - "blend": the best combination of them.  Before the last merge parts are easier, with
          losses halfway to those of the whole, and rows whose coefficients are small wait; after
          it, rows with a say go ahead of the others where they are few, as a level of their own.
        - "concatenate": their dual variables as they are, as the SODM paper has it.
        - "same": the same, where losses are those of the whole in every part.
        - "auto": "same" for clusters and survivors, else "blend".
    survivors : bool, default=False
        Whether rows whose dual variable is 0 are left behind in a merge.
    final : {"average", "local"}, default="average"
        What answers where "sodm" ends: the average of the parts' machines, or, with
        ``partition="kmeans"``, the machine of the cluster that is nearest (DC's early
        prediction).  Then no merge is needed, ``levels`` only says how many clusters there are,
        and attributes are those of `LocalODMClassifier`, which has more to it.
    engine : object, optional
        What holds the parts of "sodm"; None means threads of this computer.
    multi_class : {"mcodm", "mcodm-paper", "ovr", "ovo"}, default="mcodm"
        What more than two classes become.

        - "mcodm": one machine, whose margins are the own score minus the runner-up's.
          With mu > 0 its objective is not convex: a series of convex problems leads to a
          point that none of them improves, and the certificate is that of the last.
        - "mcodm-paper": the same with the outer loop of the mcODM paper, a heuristic.
        - "ovr": every class against the rest.
        - "ovo": every class against every other, one vote each.
    fit_intercept : bool, default=False
        Whether to add a constant feature of value 1, penalised as the others are.  The
        machines of the papers have none; linear and poly kernels on data that is not
        centred want one.
    class_weight : dict or "balanced", optional
        Factors on the losses of each class.
    tol : float, default=1e-3
        Relative duality gap at which to stop.
    max_iter : int, default=1000
        Most rounds (epochs or Newton steps) of the solver.
    time_limit : float, optional
        Seconds after which to stop with the best answer so far.
    warm_start : bool, default=False
        Continue from the last fit, if it had the same rows.
    memory_limit : float or str, optional
        Bytes, or text such as "2GB", for kernel values kept during training (with landmarks,
        for all that training takes beside X); None means half of the memory that is free.
        What does not fit is computed again.
    n_jobs : int, optional
        Threads; None means all cores.
    random_state : int, RandomState or None
        Decides the order of the rows.
    device : {"auto", "cpu", "cuda", "cuda:0", ...}, optional
        Where to work.  None is where X is: PyTorch's and CuPy's arrays stay on their device.
        "cuda" moves other rows there, in blocks if they are many; "auto" does so where there is
        a GPU and the work is large enough.  "newton" and "landmark" work on a device; several
        classes in one machine ("mcodm") are trained on the CPU, over features from the device.
    precision : {"auto", "half", "single", "double"}, default="auto"
        Of kernel values, or of features on a device.  "auto" is double where there are few rows
        and single where there are many.  "half", for landmarks on a GPU, keeps features in half
        the space and reads them in half the time, with sums as exact as those of "single"; where
        rounding shows, the answer is improved in single precision.
    verbose : int, default=0
        Above 0, one live line of progress.

    Attributes
    ----------
    dual_coef_ : ndarray of shape (1, n_support) or (n_classes, n_support)
        Coefficients b of the support rows, or of the landmarks.
    support_ : ndarray of shape (n_support,)
        Training rows with a nonzero coefficient, or that are landmarks (-1 for one that is no
        training row).
    support_vectors_ : ndarray or CSR matrix of shape (n_support, n_features)
    intercept_ : ndarray of shape (1,) or (n_classes,)
    gamma_ : float
        The number that ``gamma`` stood for.
    kernel_shift_ : float
        What was added to the diagonal of the kernel matrix, because it had negative
        eigenvalues (sigmoid, callable and precomputed kernels may); else 0.
    kernel_dtype_ : str
        The precision of kernel values, in training and prediction.
    residual_ : float
        The share of the kernel matrix's trace that landmarks leave out, on a sample of the rows;
        0 without landmarks.
    exact_gap_ : float, or ndarray of shape (n_classes,)
        Relative duality gap with the machine that has no landmarks: how far above its optimum
        the objective may be.  Equal to ``dual_gap_`` without landmarks; nan for "mcodm" with.
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Weights in feature space; with ``kernel="linear"`` only.
    classes_ : ndarray of shape (n_classes,)
    lam_ : float
        The number that ``lam`` stood for.
    objective_ : float, or ndarray of shape (n_classes,)
        The value of the objective above.
    dual_gap_ : float, or ndarray of shape (n_classes,)
        Relative duality gap: the objective is at most that far above the optimum.
    loo_bound_ : float, or ndarray of shape (n_classes,)
        Theorem 3 of the ODM paper: an estimate from above of the leave-one-out error, which
        may exceed 1 and, where many margins are just above 1 + theta, fall short.
    loo_count_ : float, or ndarray of shape (n_classes,)
        A share of rows that the leave-one-out error never exceeds at the optimum.
    n_iter_ : int
    status_ : str
        "converged", "max_iter", "time_limit", "callback", "precision" or "indefinite".
    solver_ : str
    traffic_ : dict
        With "sodm": ``"rounds"`` of calls to the parts and of merges, and the ``"bytes"`` that
        went there and back, of all machines.
    history_ : dict of ndarrays
        Columns machine, round, objective, gap and time.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from optimargin import ODMClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = make_pipeline(StandardScaler(), ODMClassifier()).fit(X, y)
    >>> round(model.score(X, y), 2)
    0.99
    """

    def __init__(
        self,
        *,
        kernel: str | Callable[[Any, Any], Any] = "rbf",
        lam: float | str = "scale",
        mu: float = 0.5,
        theta: float = 0.1,
        gamma: float | str = "scale",
        degree: float = 3,
        coef0: float = 0.0,
        solver: str = "auto",
        n_landmarks: int | str = "auto",
        landmarks: Any = "margin",
        n_partitions: int | None = None,
        fan_in: int = 4,
        partition: str = "stratified",
        n_strata: int = 32,
        levels: int | None = None,
        merge: str = "auto",
        survivors: bool = False,
        final: str = "average",
        engine: Any = None,
        multi_class: str = "mcodm",
        fit_intercept: bool = False,
        class_weight: Any = None,
        tol: float = 1e-3,
        max_iter: int = 1000,
        time_limit: float | None = None,
        warm_start: bool = False,
        memory_limit: float | str | None = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        device: str | None = None,
        precision: str = "auto",
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.lam = lam
        self.mu = mu
        self.theta = theta
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.solver = solver
        self.n_landmarks = n_landmarks
        self.landmarks = landmarks
        self.n_partitions = n_partitions
        self.fan_in = fan_in
        self.partition = partition
        self.n_strata = n_strata
        self.levels = levels
        self.merge = merge
        self.survivors = survivors
        self.final = final
        self.engine = engine
        self.multi_class = multi_class
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.tol = tol
        self.max_iter = max_iter
        self.time_limit = time_limit
        self.warm_start = warm_start
        self.memory_limit = memory_limit
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.device = device
        self.precision = precision
        self.verbose = verbose
