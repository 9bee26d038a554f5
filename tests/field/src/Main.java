// main < f < g < h, where the time goes.
public class Main {
    static int h(int n) {
        int sum = 1;
        for (int i = 0; i < n; i++) sum = (sum * 31 + i) % 1000003;
        return sum;
    }
    static int g(int n) { return h(n) + 1; }
    static int f(int n) { return g(n) + 1; }
    public static void main(String[] arguments) {
        long start = System.nanoTime(), sum = 0;
        while (System.nanoTime() - start < 3000000000L) sum += f(100000);
        System.out.println(sum);
    }
}
