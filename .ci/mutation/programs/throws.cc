// Exceptions: landing pads, destructors on the way, a handler that throws again.
#define APART __attribute__((noinline))
namespace {
long gone;
struct Guard {
    long mark;
    APART ~Guard() { gone += mark; }
};
APART long deep(long n) {
    if (n == 0) throw 5L;
    Guard guard{n};
    return deep(n - 1) * 3 + guard.mark;
}
APART long again(long n) {
    Guard outer{n * 2};
    try {
        return deep(n);
    } catch (long &thrown) {
        thrown++;
        Guard inner{thrown};
        throw;
    }
}
} // namespace
int main() {
    long sum = 0;
    for (long i = 0; i < 3; i++) {
        try {
            sum += again(i);
        } catch (long thrown) {
            sum += thrown * i;
        }
    }
    return sum + gone == 0;
}
