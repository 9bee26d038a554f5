// Main < F < .. < G < H, where the time goes.
using System;
class Run {
    static int H(int n) { int s = 1; for (int i = 0; i < n; i++) s = (int)(((long)s * 31 + i) % 1000003); return s; }
    static int G(int n) { return H(n) + 1; }
    static int F(int n) { return n == 0 ? G(100000) : 1 + F(n - 1); }
    static void Main(string[] arguments) {
        long sum = 0;
        var start = DateTime.Now;
        while ((DateTime.Now - start).TotalSeconds < 3) sum += F(5);
        Console.WriteLine(sum);
    }
}
