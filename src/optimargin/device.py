"""What makes a device fast: products in half precision, blocks sized to the card, moving rows.

Everything here has a plain version in array-API operations for whatever else holds the arrays.
Features may be kept in half precision; a vector that meets them is split into two halves, the
second what the first leaves over, and sums are single precision inside a product and double
precision outside, so that products are as good as single precision has them (`columns`,
`product`).  So are features, but for their own rounding: see `Triangle`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

from optimargin.arrays import (
    brought,
    cast,
    is_foreign,
    library,
    name_of_dtype,
    namespace,
    on_host,
    zeros,
)
from optimargin.memory import available

T = TypeVar("T")

_EIGHT = 8  # columns that a product of half-precision matrices is fastest with
_LARGE = 16384.0  # of a number in half precision, with room to spare
_SHIFT = 2048.0  # what the second half is multiplied by: as many bits as the first has
_BLOCK = 1 << 31  # bytes of a block of rows at work, at most
_SHARES = 48  # blocks that the free memory of a device has room for, at least
_SHARE = 0.9  # of the free memory of a device that is used
_TILE = 512  # columns of a triangular product at a time
_LEAST = 64  # rows of a block


def has_half(like: Any) -> bool:
    """Whether products of half-precision matrices with single-precision sums are at hand."""
    return library(like) == "torch" and like.is_cuda


class Columns(NamedTuple):
    """Columns as products with matrices in some precision want them: see `columns`."""

    parts: Any
    scale: Any
    width: int

    def rows(self, span: slice) -> Columns:
        """Some of their rows."""
        return self._replace(parts=self.parts[span, ...])


def columns(W: Any, dtype: str) -> Columns:
    """A vector or a few columns, ready for products with matrices of that precision.

    For half precision they are two halves, W = (high + low / shift) scale, side by side, and
    as many zeros as make their number a multiple of 8, which is what products are fastest with.
    """
    xp = namespace(W)
    W = W[:, None] if W.ndim == 1 else W
    if dtype != "float16":
        return Columns(cast(W, dtype), None, int(W.shape[1]))
    scale = xp.max(xp.abs(W), axis=0)
    scale = xp.where(scale > 0.0, scale, xp.ones_like(scale))
    high, low = _split(W / scale)
    missing = -2 * int(W.shape[1]) % _EIGHT
    parts = [high, low] + [zeros((int(W.shape[0]), missing), W, "float16")] * (missing > 0)
    return Columns(xp.concat(parts, axis=1), scale, int(W.shape[1]))


def product(A: Any, w: Columns) -> Any:
    """A @ w in double precision."""
    if w.scale is None:
        return cast(A @ w.parts, "float64")
    P, k = _matmul(A, w.parts), w.width
    return (cast(P[:, :k], "float64") + cast(P[:, k : 2 * k], "float64") / _SHIFT) * w.scale


def times(A: Any, w: Any) -> Any:
    """A @ w in double precision, for a vector or a few columns w."""
    if not is_foreign(A):
        return A @ w  # NumPy's sums are double precision where w is
    found = product(A, columns(w, name_of_dtype(A)))
    return found if w.ndim == 2 else found[:, 0]


def _matmul(A: Any, B: Any) -> Any:
    """A @ B for half-precision A and B, in single precision."""
    import torch

    if not A.is_cuda:  # where it is no faster, but as right
        return A.float() @ B.float()
    return torch.mm(A, B, out_dtype=torch.float32)


def squared(A: Any) -> Any:
    """A.T @ A: in single precision where A is half."""
    return _matmul(A.T, A) if name_of_dtype(A) == "float16" else A.T @ A


class Triangle:
    """A lower triangular matrix M that blocks of rows K are multiplied with: K @ M.T.

    In half precision what comes out is K @ N.T for the rounded N, and M = twist N: whoever takes
    the twist into account works with M exactly.  K is split into two halves, which follow each
    other tile by tile, so that one product takes both and leaves out what is zero.
    """

    def __init__(self, M: Any, dtype: str) -> None:
        """``dtype`` is the precision of what comes out."""
        self.is_half, self.size = dtype == "float16", int(M.shape[0])
        self.twist: Any = None
        if not self.is_half:
            self.M = cast(M, dtype)
            return
        import torch

        self.tile = min(_TILE, -(-self.size // _EIGHT) * _EIGHT)
        scale = max(float(M.abs().max()) / _LARGE, 1.0)
        N = (M / scale).half()
        self.twist = M @ triangular(N.double(), torch.eye(len(N), dtype=M.dtype, device=M.device))
        self.N = N
        tiles = self._padded(N).view(len(N), -1, 1, self.tile)
        self.M = tiles.expand(-1, -1, 2, -1).flatten(1).contiguous()

    def _padded(self, K: Any) -> Any:
        """A matrix whose columns fill its tiles."""
        import torch

        missing = -self.size % self.tile
        return torch.nn.functional.pad(K, (0, missing)) if missing else K

    def applied(self, K: Any) -> Any:
        """K @ M.T, or K @ N.T, skipping what is zero."""
        if not self.is_half:
            return K @ self.M.T
        import torch

        K = self._padded(K).view(len(K), -1, self.tile)
        A = torch.empty((len(K), K.shape[1], 2, self.tile), dtype=torch.float16, device=K.device)
        A[:, :, 0].copy_(K)
        torch.sub(K, A[:, :, 0], out=A[:, :, 1])
        A = A.flatten(1)
        out = torch.empty((len(K), self.size), dtype=torch.float16, device=K.device)
        with _single_sums():
            for start in range(0, self.size, self.tile):
                stop, used = min(start + self.tile, self.size), 2 * (start + self.tile)
                torch.mm(A[:, :used], self.M[start:stop, :used].T, out=out[:, start:stop])
        return out

    def unit(self, L: Any) -> Any:
        """The identity of the features of M = L^{-1}, in those that come out: N L L' N'."""
        if self.twist is None:
            return None
        self.back = self.N.double() @ L
        return cast(self.back @ self.back.T, "float32")

    def twisted(self, W: Any) -> Any:
        """What a model in the features of M is in those that come out."""
        return W if self.twist is None else self.twist.T @ W

    def untwisted(self, r: Any, transposed: bool = False) -> Any:
        """The twist's inverse, or the inverse of its transpose, times r."""
        if self.twist is None:
            return r
        return self.back.T @ r if transposed else self.back @ r

    def straight(self, G: Any) -> Any:
        """Sums of what comes out as sums of the features of M."""
        return G if self.twist is None else cast(self.twist, name_of_dtype(G)) @ G


@contextmanager
def _single_sums() -> Iterator[None]:
    """Inside this context sums of PyTorch's half-precision products are single precision."""
    import torch

    settings = torch.backends.cuda.matmul
    before = settings.allow_fp16_reduced_precision_reduction
    settings.allow_fp16_reduced_precision_reduction = False
    try:
        yield
    finally:
        settings.allow_fp16_reduced_precision_reduction = before


def _split(M: Any) -> tuple[Any, Any]:
    """Two half-precision matrices: M = high + low / shift."""
    high = cast(M, "float16")
    return high, cast((M - cast(high, name_of_dtype(M))) * _SHIFT, "float16")


def exponentials(K: Any) -> Any:
    """Exponents replaced by their exponentials, in place where that is possible."""
    if library(K) == "torch":
        return K.exp_()  # what rounding leaves above 0 does no harm
    xp = namespace(K)
    return xp.exp(xp.clip(K, None, 0.0))


def city_blocks(A: Any, B: Any) -> Any:
    """The distances |a - b|_1 between rows."""
    if library(A) == "torch":
        import torch

        return torch.cdist(A, B, p=1.0)
    out = zeros((A.shape[0], B.shape[0]), A, name_of_dtype(A))
    for k in range(A.shape[1]):
        out += namespace(A).abs(A[:, k][:, None] - B[:, k][None, :])
    return out


def triangular(L: Any, B: Any) -> Any:
    """L^{-1} B for a lower triangular L."""
    if library(L) == "torch":
        import torch

        return torch.linalg.solve_triangular(L, B, upper=False)
    if library(L) == "cupy":
        from cupyx.scipy.linalg import solve_triangular

        return solve_triangular(L, B, lower=True)
    return namespace(L).linalg.solve(L, B)


# -- memory -------------------------------------------------------------------------------------


def free_bytes(like: Any) -> float:
    """Bytes that may still be taken where an array is; None of this counts on the host."""
    if library(like) == "torch" and like.is_cuda:
        import torch

        free, _ = torch.cuda.mem_get_info(like.device)
        cached = torch.cuda.memory_reserved(like.device) - torch.cuda.memory_allocated(like.device)
        return _SHARE * (free + cached)
    if library(like) == "cupy":
        import cupy

        with like.device:
            pool = cupy.get_default_memory_pool()
            return _SHARE * (cupy.cuda.runtime.memGetInfo()[0] + pool.free_bytes())
    return 0.5 * available()


def width_of(columns: int, size: int, like: Any) -> int:
    """Rows in a block of so many columns of ``size`` bytes, where an array is."""
    block = min(_BLOCK, int(free_bytes(like)) // _SHARES)
    return max(_LEAST, block // max(columns * size, 1))


def spans_of(X: Any, part: slice) -> list[slice]:
    """A range of rows in blocks."""
    width = width_of(X.shape[1], 8, beside(X))
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
        return brought(self.X[on_host(rows) if is_foreign(rows) else rows], self.like)


def beside(X: Any) -> Any:
    """An array where the rows of X are worked on."""
    return X.like if isinstance(X, Moved) else X
