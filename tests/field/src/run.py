# f < g < h, where the time goes.
import time

def h(n):
    total = 0
    for i in range(n):
        total += i * i % 7
    return total

def g(n):
    return h(n) + 1

def f(n):
    return g(n) + 1

start = time.time()
while time.time() - start < 2:
    f(20000)
