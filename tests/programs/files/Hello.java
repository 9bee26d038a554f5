import java.util.List;
import java.util.stream.Collectors;

public class Hello {
    public static void main(String[] arguments) throws Exception {
        Thread thread = new Thread(() -> System.out.println("in a thread"));
        thread.start();
        thread.join();
        System.out.println(List.of(3, 1, 2).stream().sorted().map(String::valueOf).collect(Collectors.joining(",")));
        long sum = 0;
        for (int i = 0; i < 20000; i++) sum += i % 7;
        System.out.println(sum);
        try { Object nothing = null; nothing.toString(); } catch (NullPointerException e) { System.out.println("null"); }
    }
}
