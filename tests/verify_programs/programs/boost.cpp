#include <boost/context/fiber.hpp>
#include <boost/context/continuation.hpp>
#include <thread>
#include <vector>
#include <mutex>
#include <cstdio>
#include <condition_variable>
#include <deque>
namespace ctx = boost::context;
static std::mutex m; static std::deque<ctx::fiber> q; static long sum; static int live; static std::condition_variable cv;
static int deep(ctx::fiber &back, int n) { volatile char p[32]; p[n] = n; if (n == 0) { back = std::move(back).resume(); return 1; } return deep(back, n - 1) + p[n] - n + 1; }
struct boom { int v; };
static void worker() {
  for (;;) {
    std::unique_lock<std::mutex> l(m); cv.wait(l, [] { return !q.empty() || !live; }); if (!live) { cv.notify_all(); return; }
    ctx::fiber f = std::move(q.front()); q.pop_front(); l.unlock();
    f = std::move(f).resume(); l.lock();
    if (f) q.push_back(std::move(f)); else live--;
    cv.notify_all();
  }
}
int main() {
  for (int i = 0; i < 20; i++) { live++; q.push_back(ctx::fiber([i](ctx::fiber &&back) { for (int r = 0; r < 10; r++) { try { if (r % 3 == 2) throw boom{r}; int d = deep(back, (i + r) % 9); __atomic_add_fetch(&sum, d, 5); } catch (boom &b) { __atomic_add_fetch(&sum, b.v, 5); } } return std::move(back); })); }
  std::vector<std::thread> t; for (int i = 0; i < 4; i++) t.emplace_back(worker); for (auto &x : t) x.join();
  { ctx::fiber f([](ctx::fiber &&b) { for (;;) b = std::move(b).resume(); return std::move(b); }); f = std::move(f).resume(); f = std::move(f).resume(); } // destroyed by forced unwinding
  printf("%ld\n", sum);
}
