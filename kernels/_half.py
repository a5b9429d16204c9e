"""temp"""
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
import numpy as np
from zeromem.kernels._numba import kernel, I64_1, I64, F32_1, F32

@intrinsic
def _load(typingctx, address):
    sig = types.float32(types.int64)
    def gen(context, builder, signature, args):
        p = builder.inttoptr(args[0], ir.HalfType().as_pointer())
        return builder.fpext(builder.load(p), ir.FloatType())
    return sig, gen

@kernel(F32(I64_1, I64, F32_1), fastmath={"reassoc", "contract"})
def row_dot(addresses, row, query):
    dim = len(query)
    base = addresses[row >> 13] + 2 * dim * (row & 8191)
    total = np.float32(0)
    for c in range(dim):
        total += _load(base + 2 * c) * query[c]
    return total


@kernel(F32(I64_1, I64, I64, I64))
def pair_dot(addresses, one, other, dim):
    query = np.empty(dim, np.float32)
    base = addresses[one >> 13] + 2 * dim * (one & 8191)
    for c in range(dim):
        query[c] = _load(base + 2 * c)
    return row_dot(addresses, other, query)
