# f < g < h, where the time goes. With an argument: a Fiber in a Fiber waits.
def h(n) sum = 1; i = 0; while i < n; sum = (sum * 31 + i) % 1000003; i += 1; end; sum end
def g(n) h(n) + 1 end
def f(n) g(n) + 1 end
start = Process.clock_gettime(Process::CLOCK_MONOTONIC)
if ARGV[0]
  Fiber.new { Fiber.new { sleep 15 }.resume }.resume
else
  f(30000) while Process.clock_gettime(Process::CLOCK_MONOTONIC) - start < 2
end
