# outer < work, both compiled by numba, where the time goes.
import time
from numba import njit

@njit
def work(n):
    total = 0.0
    for i in range(n):
        total += (i * 1.5) % 7.0
    return total

@njit
def outer(n):
    return work(n) + work(n // 2) + 1

outer(10)
start = time.time()
while time.time() - start < 9:
    outer(3000000)
