"""What makes a device fast: products in half precision, blocks sized to the card, moving rows.

Everything here has a plain version in array-API operations for whatever else holds the arrays.
Features may be kept in half precision; a vector that meets them is split into two halves, the
second what the first leaves over, and sums are single precision inside a product and double
precision outside, so that products are as good as single precision has them.  So is a matrix
that is made of two that are split (`product`), at three times the cost of half precision, where
plain single precision would cost twelve times as much.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from optimargin.arrays import brought, cast, device_of, is_foreign, name_of_dtype, namespace, zeros

T = TypeVar("T")

_SHIFT = 2048.0  # what the second half is multiplied by: as many bits as the first has
_BLOCK = 1 << 30  # bytes of a block of rows at work
_SHARE = 0.9  # of the free memory of a device that is used
_TILE = 1024  # columns of a triangular product at a time
_LEAST = 64  # rows of a block


def has_half(like: Any) -> bool:
    """Whether products of half-precision matrices with single-precision sums are at hand."""
    return type(like).__module__.partition(".")[0] == "torch" and like.is_cuda


def times(A: Any, w: Any) -> Any:
    """A @ w in double precision, for a vector or a few columns w."""
    kind = name_of_dtype(A)
    if kind == "float64":
        return A @ w
    if kind == "float32" and is_foreign(A):
        return cast(A @ cast(w, kind), "float64")
    if kind == "float32":  # NumPy's, whose sums are double precision for the asking
        return A @ w
    W = w if w.ndim == 2 else w[:, None]
    high, low, scale = _halves(W)
    found = _joined(_matmul(A, _beside(high, low)), scale)
    return found if w.ndim == 2 else found[:, 0]


def gathered(A: Any, r: Any) -> Any:
    """A.T @ r in double precision, for a vector or a few columns r."""
    return times(A.T, r)


def _halves(W: Any) -> tuple[Any, Any, Any]:
    """Two half-precision matrices and a factor for each column: W = (high + low / shift) factor."""
    xp = namespace(W)
    scale = xp.max(xp.abs(W), axis=0)
    scale = xp.where(scale > 0.0, scale, xp.ones_like(scale))
    W = W / scale
    high = cast(W, "float16")
    low = cast((W - cast(high, name_of_dtype(W))) * _SHIFT, "float16")
    return high, low, scale


def _beside(high: Any, low: Any) -> Any:
    return namespace(high).concat([high, low], axis=1)


def _joined(P: Any, scale: Any) -> Any:
    """The products with both halves made one, in double precision."""
    k = scale.shape[0]
    return (cast(P[:, :k], "float64") + cast(P[:, k:], "float64") / _SHIFT) * scale


def _matmul(A: Any, B: Any) -> Any:
    """A product of half-precision matrices, summed in single precision."""
    import torch

    return torch.mm(A, B, out_dtype=torch.float32)


def squared(A: Any) -> Any:
    """A.T @ A: in single precision where A is half."""
    return _matmul(A.T, A) if name_of_dtype(A) == "float16" else A.T @ A


class Triangle:
    """A lower triangular matrix M that blocks of rows are multiplied with: K @ M.T."""

    def __init__(self, M: Any, dtype: str) -> None:
        """``dtype`` is the precision of the blocks, and "float16" of what comes out of them."""
        self.is_split = dtype == "float16"
        self.M = (_split(M)) if self.is_split else cast(M, dtype)

    def applied(self, K: Any) -> Any:
        """K @ M.T, skipping what is zero."""
        if not self.is_split:
            return K @ self.M.T
        high, low, scale = self.M
        first, second, _ = _split(K, 1.0)
        import torch

        n, S = K.shape
        out = torch.empty((n, S), dtype=torch.float16, device=K.device)
        for start in range(0, S, _TILE):
            stop = min(start + _TILE, S)
            a, b = first[:, :stop], second[:, :stop]
            h, m = high[start:stop, :stop].T, low[start:stop, :stop].T
            tile = _matmul(a, m)
            tile += _matmul(b, h)
            tile *= 1.0 / _SHIFT
            tile += _matmul(a, h)
            tile *= scale
            out[:, start:stop] = tile
        return out


def _split(M: Any, scale: float | None = None) -> tuple[Any, Any, float]:
    """Two half-precision matrices and a number: M = (high + low / shift) number."""
    xp = namespace(M)
    scale = float(xp.max(xp.abs(M))) or 1.0 if scale is None else scale
    M = M / scale if scale != 1.0 else M
    high = cast(M, "float16")
    low = cast((M - cast(high, name_of_dtype(M))) * _SHIFT, "float16")
    return high, low, scale


def exponentials(K: Any) -> Any:
    """Exponents replaced by their exponentials, in place where that is possible."""
    if type(K).__module__.partition(".")[0] == "torch":
        return K.clamp_(max=0.0).exp_()
    xp = namespace(K)
    return xp.exp(xp.clip(K, None, 0.0))


def city_blocks(A: Any, B: Any) -> Any:
    """The distances |a - b|_1 between rows."""
    if type(A).__module__.partition(".")[0] == "torch":
        import torch

        return torch.cdist(A, B, p=1.0)
    out = zeros((A.shape[0], B.shape[0]), A, name_of_dtype(A))
    for k in range(A.shape[1]):
        out += namespace(A).abs(A[:, k][:, None] - B[:, k][None, :])
    return out


def triangular(L: Any, B: Any) -> Any:
    """L^{-1} B for a lower triangular L."""
    kind = type(L).__module__.partition(".")[0]
    if kind == "torch":
        import torch

        return torch.linalg.solve_triangular(L, B, upper=False)
    if kind == "cupy":
        from cupyx.scipy.linalg import solve_triangular

        return solve_triangular(L, B, lower=True)
    return namespace(L).linalg.solve(L, B)


# -- memory -------------------------------------------------------------------------------------


def free_bytes(like: Any) -> float:
    """Bytes that may still be taken where an array is; None of this counts on the host."""
    kind = type(like).__module__.partition(".")[0]
    if kind == "torch" and like.is_cuda:
        import torch

        free, _ = torch.cuda.mem_get_info(like.device)
        cached = torch.cuda.memory_reserved(like.device) - torch.cuda.memory_allocated(like.device)
        return _SHARE * (free + cached)
    if kind == "cupy":
        import cupy

        with like.device:
            pool = cupy.get_default_memory_pool()
            return _SHARE * (cupy.cuda.runtime.memGetInfo()[0] + pool.free_bytes())
    import psutil

    return 0.5 * psutil.virtual_memory().available


def width_of(columns: int, size: int) -> int:
    """Rows in a block of so many columns of ``size`` bytes."""
    return max(_LEAST, _BLOCK // max(columns * size, 1))


def spans_of(X: Any, part: slice) -> list[slice]:
    """A range of rows in blocks."""
    width = width_of(X.shape[1], 8)
    edges = range(part.start, part.stop, width)
    return [slice(start, min(start + width, part.stop)) for start in edges]


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that a device has no memory left."""
    return type(error).__name__ in ("OutOfMemoryError", "MemoryError")


def release() -> None:
    """Give memory back that libraries hold for later."""
    import sys

    if "torch" in sys.modules and sys.modules["torch"].cuda.is_available():
        sys.modules["torch"].cuda.empty_cache()
    if "cupy" in sys.modules:
        sys.modules["cupy"].get_default_memory_pool().free_all_blocks()


def in_smaller_blocks(work: Callable[[slice], T], span: slice) -> list[T]:
    """``[work(span)]``, or what it says of halves of it, where the device is out of memory."""
    try:
        return [work(span)]
    except Exception as error:
        if not is_out_of_memory(error) or span.stop - span.start <= _LEAST:
            raise
    release()
    middle = (span.start + span.stop) // 2
    first = in_smaller_blocks(work, slice(span.start, middle))
    return first + in_smaller_blocks(work, slice(middle, span.stop))


# -- rows of the host ---------------------------------------------------------------------------


class Moved:
    """Rows of NumPy arrays, memory maps or files that are wanted on a device: a block at a time."""

    def __init__(self, X: Any, like: Any) -> None:
        self.X, self.like = X, like

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.X.shape

    @property
    def dtype(self) -> Any:
        """The type of the numbers."""
        return self.X.dtype

    def __getitem__(self, rows: Any) -> Any:
        """Rows on the device: a slice, or by number."""
        rows = rows if isinstance(rows, slice) else on_host_index(rows)
        return brought(self.X[rows], self.like)


def beside(X: Any) -> Any:
    """An array where the rows of X are worked on."""
    return X.like if isinstance(X, Moved) else X


def on_host_index(rows: Any) -> np.ndarray:
    """Row numbers as NumPy's."""
    from optimargin.arrays import on_host

    return on_host(rows) if is_foreign(rows) else rows


def same_place(like: Any, other: Any) -> bool:
    """Whether two arrays live together."""
    return namespace(like) is namespace(other) and device_of(like) == device_of(other)
