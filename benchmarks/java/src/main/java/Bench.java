import io.github.resilience4j.circuitbreaker.CallNotPermittedException;
import io.github.resilience4j.circuitbreaker.CircuitBreaker;
import io.github.resilience4j.circuitbreaker.CircuitBreakerConfig;
import io.github.resilience4j.circuitbreaker.CircuitBreakerConfig.SlidingWindowType;
import io.github.resilience4j.retry.Retry;
import java.util.Arrays;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;

/**
 * What one protected call costs with resilience4j: nanoseconds, median of many short rounds after a warm-up. Each case runs in a JVM of
 * its own (its number is the argument), as one case would spoil what the compiler learned of the next. Prints one JSON object.
 */
public final class Bench {
  private static final int SIZE = 2000;
  private static volatile int kept; // so that no work is thrown away

  private static int one = 1;

  private static Integer send() {
    return one;
  }

  private interface Work {
    int run();
  }

  private record Case(String peer, String path, String what, Work work) {}

  private static CircuitBreakerConfig.Builder config() {
    return CircuitBreakerConfig.custom().minimumNumberOfCalls(8).failureRateThreshold(50);
  }

  private static Work protectedBy(CircuitBreaker breaker) {
    Supplier<Integer> call = CircuitBreaker.decorateSupplier(breaker, Bench::send);
    return call::get;
  }

  private static Work refusedBy(CircuitBreaker breaker) {
    breaker.transitionToForcedOpenState();
    Supplier<Integer> call = CircuitBreaker.decorateSupplier(breaker, Bench::send);
    return () -> {
      try {
        return call.get();
      } catch (CallNotPermittedException refused) {
        return 2;
      }
    };
  }

  private static Case[] cases() {
    String name = "resilience4j";
    CircuitBreaker count = CircuitBreaker.of("count", config().slidingWindow(100, 8, SlidingWindowType.COUNT_BASED).build());
    CircuitBreaker time = CircuitBreaker.of("time", config().slidingWindow(60, 8, SlidingWindowType.TIME_BASED).build());
    CircuitBreaker inner = CircuitBreaker.of("inner", config().slidingWindow(60, 8, SlidingWindowType.TIME_BASED).build());
    CircuitBreaker bare = CircuitBreaker.of("bare", config().slidingWindow(100, 8, SlidingWindowType.COUNT_BASED).build());
    Supplier<Integer> both =
        Retry.decorateSupplier(Retry.ofDefaults("retry"), CircuitBreaker.decorateSupplier(inner, Bench::send));
    return new Case[] {
      new Case("bare call", "bare", "the call alone", Bench::send),
      new Case(name, "success", "decorateSupplier, count window (100)", protectedBy(count)),
      new Case(name, "success", "decorateSupplier, time window (60 s)", protectedBy(time)),
      new Case(name, "success", "decorateSupplier, retry over breaker", both::get),
      new Case(name, "success", "tryAcquirePermission and onSuccess, no clock", () -> {
        int n = bare.tryAcquirePermission() ? send() : 2;
        bare.onSuccess(0, TimeUnit.NANOSECONDS);
        return n;
      }),
      new Case(name, "reject", "decorateSupplier, open", refusedBy(CircuitBreaker.of("open", config().build()))),
      new Case(name, "reject", "decorateSupplier, open, no stack trace",
          refusedBy(CircuitBreaker.of("quiet", config().writableStackTraceEnabled(false).build()))),
    };
  }

  private static double[] measure(int rounds, Work work) {
    double[] took = new double[rounds];
    int sum = 0;
    long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(1500);
    while (System.nanoTime() < until) {
      for (int i = 0; i < SIZE; i++) {
        sum += work.run();
      }
    }
    for (int r = 0; r < rounds; r++) {
      long begun = System.nanoTime();
      for (int i = 0; i < SIZE; i++) {
        sum += work.run();
      }
      took[r] = (double) (System.nanoTime() - begun) / SIZE;
    }
    kept = sum;
    Arrays.sort(took);
    return new double[] {took[rounds / 2], took[rounds * 99 / 100]};
  }

  public static void main(String[] args) {
    Case[] all = cases();
    if (args.length < 2) {
      System.out.println(all.length);
      return;
    }
    Case c = all[Integer.parseInt(args[0])];
    double[] took = measure(Integer.parseInt(args[1]), c.work());
    System.out.printf("{\"peer\":\"%s\",\"path\":\"%s\",\"what\":\"%s\",\"ns\":%.2f,\"p99_ns\":%.2f,\"runtime\":\"%s\"}%n",
        c.peer(), c.path(), c.what(), took[0], took[1], System.getProperty("java.vm.name") + " " + Runtime.version());
  }
}
